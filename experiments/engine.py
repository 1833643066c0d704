"""Speed, memory and growth of the engine, as ratios within one run.

    python -m experiments.engine [speed|memory|growth|all] [--checkpoints FOLDER] [--output FILE.json]

With `--checkpoints` (and the data fetched) the trained MLPNet and ResNet20 of the paper are used, else networks of the
same shape with random weights and random data: the gradients cost the same, the searches take other paths.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brainsurgeon.files.versions import versions
from experiments.engine_growth import growth
from experiments.engine_memory import memory
from experiments.engine_speed import speed
from experiments.records import BENCHMARKS, write

PARTS = {"speed": speed, "memory": memory, "growth": growth}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*PARTS, "all"], nargs="?", default="all")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "engine-2-cores.json")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"versions": versions("cpu"), "trained": options.checkpoints is not None}
    for name, part in PARTS.items():
        if options.what in (name, "all"):
            found.update(part(options.checkpoints))
    print(json.dumps(found, indent=2))
    write(options.output, found)


if __name__ == "__main__":
    main()
