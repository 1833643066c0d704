"""Plant faults in a copy of the source, one at a time, and see whether the tests nearest to each notice it.

    python tests/planted_faults.py              all faults, then the share that was noticed
    python tests/planted_faults.py momentum     those whose name holds a word

A fault is a file under `src/brainsurgeon`, a text that stands there exactly once, what takes its place, and the tests
that should fail. The copy comes first on PYTHONPATH; the source itself is never touched. A text that is no longer there
is an error: the list must be brought to the present source. Not collected by pytest; takes some minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.faults import FAULTS, Fault
from helpers.layer_faults import LAYER_FAULTS
from helpers.model_faults import MODEL_FAULTS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "brainsurgeon"
KNOWN = [*FAULTS, *LAYER_FAULTS, *MODEL_FAULTS]


def noticed(fault: Fault, folder: Path) -> bool:
    """Plant a fault in a fresh copy, and say whether its tests fail."""
    copy = folder / "brainsurgeon"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.name}: its text stands {text.count(fault.old)} times in {fault.file}, expected once")
    path.write_text(text.replace(fault.old, fault.new))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # neither passed nor failed: the tests could not be run
        raise SystemExit(f"{fault.name}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode == 1


def main(words: list[str]) -> int:
    """Plant every fault whose name holds one of the words, and report the share that was noticed."""
    chosen = [fault for fault in KNOWN if not words or any(word in fault.name for word in words)]
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for fault in chosen:
            seen = noticed(fault, Path(folder))
            found += seen
            sys.stdout.write(f"{'noticed' if seen else 'MISSED ':8} {fault.name}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{found} of {len(chosen)} faults noticed\n")
    return int(found < len(chosen))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
