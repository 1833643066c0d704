"""Run the tests that need a CUDA device, and record what they said.

python -m experiments.gpu_tests [--processes 4] [--output FILE.json]
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from brainsurgeon.files.versions import versions
from experiments.records import BENCHMARKS, ROOT, write


def main(arguments: Sequence[str] | None = None) -> None:
    """Run them; the exit status is pytest's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "gpu-tests.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-n", str(options.processes), f"--junitxml={report}"]
        status = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, check=False).returncode
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
        failed = [f"{case.get('classname')}.{case.get('name')}" for case in suite.iter("testcase") if _failed(case)]
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    write(options.output, counts | {"failed": failed, "seconds": suite.get("time"), "versions": versions("cuda")})
    sys.exit(status)


def _failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


if __name__ == "__main__":
    main()
