"""Prune thousands of random small networks in one process, recount each, and watch memory and open files.

    python tests/soak.py                          2,000 prunings, then what was found
    python tests/soak.py --output FILE.json       a record beside it

Every pruning is made twice (the second time with the same seed, often in place) and recounted with plain Python; see
helpers/random_prunings.py. Not collected by pytest; takes some minutes.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from brainsurgeon.files.versions import versions
from helpers.random_prunings import failures_of, handles, resident

ROOT = Path(__file__).resolve().parents[1]
WARM, EVERY, AGAIN = 200, 200, 60
"""Prunings that fill the caches, between two readings, and of a repetition whose shapes are all known."""


def soak(count: int, warm: int = WARM, every: int = EVERY) -> dict[str, object]:
    """Run so many prunings; return the failures, and memory and open files after each part of them."""
    begun = time.monotonic()
    failures, readings = failures_of(0, warm), [_reading(warm)]
    for first in range(warm, count, every):
        some = min(every, count - first)
        failures += failures_of(first, some)
        readings.append(_reading(first + some))
    repeated = []
    for _ in range(3):
        failures += failures_of(0, min(AGAIN, count))
        repeated.append(_reading(min(AGAIN, count)))
    return {
        "prunings": count,
        "failures": failures,
        "readings": readings,
        "repeated": repeated,
        "seconds": round(time.monotonic() - begun),
    }


def _reading(prunings: int) -> dict[str, float]:
    gc.collect()
    return {"prunings": prunings, "resident_mib": round(resident() / 2**20, 1), "open_files": handles()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prunings", type=int, default=2000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    found = soak(options.prunings) | {"versions": versions()}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    if options.output:
        sys.path.insert(0, str(ROOT))
        from experiments.records import write

        write(options.output, found)


if __name__ == "__main__":
    main()
