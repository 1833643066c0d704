"""Record a transcript: run the commands of a page's console blocks, in order, and write down what they say.

    python -m experiments.transcript docs/tool.md

Lines of a block that begin with `$ ` are run with bash in one empty folder, in which the page's Python blocks with a
title are files; what stood below them is replaced by what they print. `# not recorded` after a command leaves its block
as it is.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FILE = re.compile(r'```python title="([^"]+)"\n(.*?)```', re.S)
CONSOLE = re.compile(r"```console\n(.*?)```", re.S)


def record(page: Path) -> str:
    """Return the page with its console blocks recorded anew."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in FILE.findall(text):
            (Path(folder) / name).write_text(content)
        return CONSOLE.sub(lambda block: _recorded(block[1], folder), text)


def _recorded(block: str, folder: str) -> str:
    if "# not recorded" in block:
        return f"```console\n{block}```"
    lines = []
    for command in re.findall(r"^\$ (.*)$", block, re.M):
        place = {**os.environ, "COLUMNS": "110", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=place,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said = done.stdout.replace(f"{folder}/", "").rstrip()
        lines += [f"$ {command}", *([said] if said else [])]
    return "```console\n" + "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n```"


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the pages that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="+")
    for page in parser.parse_args(arguments).pages:
        page.write_text(record(page))


if __name__ == "__main__":
    main()
