"""Plant faults in a copy of the source, one at a time, and see whether the tests nearest to each notice it.

    python tests/planted_faults.py                         all faults, then the share that was noticed
    python tests/planted_faults.py momentum                those whose name holds a word
    python tests/planted_faults.py --output FILE.json      a record beside it

A fault is a file under `src/brainsurgeon`, a text that stands there exactly once, what takes its place, and the tests
that should fail. The copy comes first on PYTHONPATH; the source itself is never touched. A text that is no longer there
is an error: the list must be brought to the present source. Not collected by pytest; takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from brainsurgeon.files.versions import versions
from helpers.faults import FAULTS, Fault
from helpers.layer_faults import LAYER_FAULTS
from helpers.model_faults import MODEL_FAULTS
from helpers.training_faults import TRAINING_FAULTS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "brainsurgeon"
KNOWN = [*FAULTS, *LAYER_FAULTS, *MODEL_FAULTS, *TRAINING_FAULTS]


def noticed(fault: Fault, folder: Path) -> bool:
    """Plant a fault in a fresh copy, and say whether its tests fail."""
    path = _copied(folder) / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.name}: its text stands {text.count(fault.old)} times in {fault.file}, expected once")
    path.write_text(text.replace(fault.old, fault.new))
    return not _passes(fault.tests.split(), folder, fault.name)


def _copied(folder: Path) -> Path:
    copy = folder / "brainsurgeon"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def _passes(tests: list[str], folder: Path, name: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # neither passed nor failed: the tests could not be run
        raise SystemExit(f"{name}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def _check_sound(chosen: list[Fault], folder: Path) -> None:
    """Refuse to go on where the tests fail without a fault: then they would notice all of them."""
    _copied(folder)
    if not _passes(sorted({place for fault in chosen for place in fault.tests.split()}), folder, "no fault"):
        raise SystemExit("some of the tests fail without a fault: mend them first")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant every fault whose name holds one of the words, and report the share that was noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="plant the faults whose names hold one of them")
    parser.add_argument("--output", type=Path, help="write a record to this file")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT))  # of the experiments, wherever the script is run from
    from experiments.records import write  # which looks the commit up

    chosen = [fault for fault in KNOWN if not options.words or any(word in fault.name for word in options.words)]
    missed, begun = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        _check_sound(chosen, Path(folder))
        for fault in chosen:
            seen = noticed(fault, Path(folder))
            missed += [] if seen else [fault.name]
            sys.stdout.write(f"{'noticed' if seen else 'MISSED ':8} {fault.name}\n")
            sys.stdout.flush()
    counts = {"faults": len(chosen), "noticed": len(chosen) - len(missed)}
    sys.stdout.write(f"{counts['noticed']} of {counts['faults']} faults noticed\n")
    if options.output is not None:
        taken = {"seconds": round(time.monotonic() - begun), "versions": versions("cpu")}
        write(options.output, counts | {"missed": missed} | taken)
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
