"""Kill runs at random moments, let them go on, and compare every weight with a run that nobody disturbed.

    python -m experiments.kills [--kills 50]

    BRAINSURGEON_DATA=DATA python -m experiments.kills --commands train --kills 60

The moments are drawn with a fixed seed. `finetune` writes its outcome at the end, whole or not at all: a killed one
leaves nothing behind, and is started again. `train` goes on from its last epoch; it reads MNIST.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.records import RESULTS, append, read_lines, table

PATH = RESULTS / "kills.jsonl"
SHORT = ("--set", "max_gradients=3000")
COMMANDS: dict[str, tuple[str, ...]] = {
    "prune cbs": ("prune", "demo", "-s", "0.9", "-m", "cbs", "-k", "300"),
    "prune staged": ("prune", "demo", "-s", "0.9", "-m", "staged", "--stages", "2", *SHORT),
    "prune layerwise": ("prune", "demo", "-s", "0.9", "-m", "layerwise"),
    "prune gradual": ("prune", "demo", "-s", "0.9", "-m", "gradual", *SHORT),
    "prune auto": ("prune", "demo", "-s", "0.9", "-m", "auto", *SHORT),
    "compare": ("compare", "demo", "-s", "0.9", "-s", "0.95", "-m", "mp", "-m", "cbs", "-k", "200"),
    "finetune": ("finetune", "{run}", "--epochs", "2"),
    "train": ("train", "mlpnet", "--epochs", "4", "--device", "cpu"),
}


def command(name: str, place: Path, run: Path, resume: bool) -> list[str]:
    """Return the command line, of a new run or of one that goes on."""
    words = [word.format(run=run) for word in COMMANDS[name]]
    if words[0] == "train":
        words += ["-o", str(place / "model.safetensors"), *(["--resume"] if resume else [])]
        return [sys.executable, "-m", "brainsurgeon", *words]
    if resume and words[0] in ("prune", "compare") and (place / "recipe.yaml").is_file():
        words = [words[0], "--resume", str(place)]
    else:
        words += ["-o", str(place)]
    return [sys.executable, "-m", "brainsurgeon", *words, "--quiet"]


def start(words: list[str]) -> subprocess.Popen[bytes]:
    """Start a command with one thread."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)


def outcome(place: Path) -> dict[str, str]:
    """Return the digests of all tensors of a run's results."""
    from safetensors.torch import load_file

    return {
        f"{path.relative_to(place)}/{name}": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        for path in sorted(place.rglob("m*.safetensors"))
        if "steps" not in path.parts
        for name, tensor in load_file(path).items()
    }


def finished(words: list[str]) -> float:
    """Run a command to its end, and return the seconds."""
    begun = time.monotonic()
    child = start(words)
    _, told = child.communicate()
    if child.returncode:
        raise SystemExit(f"{' '.join(words)}: {told.decode()[-2000:]}")
    return time.monotonic() - begun


def kill_one(name: str, draw: random.Random, folder: Path, run: Path, whole: dict[str, str], seconds: float) -> bool:
    """Kill a fresh run once, let it go on, and say whether it came to the same bits."""
    place = folder / "killed"
    shutil.rmtree(place, ignore_errors=True)
    child = start(command(name, place, run, resume=False))
    time.sleep(draw.uniform(0.1, 1.0) * seconds)
    hit = child.poll() is None
    if hit:
        child.send_signal(signal.SIGKILL)
    child.communicate()
    done = name == "finetune" and (place / "result.json").is_file()  # killed on its way out: it is not started again
    done |= name == "train" and bool(outcome(place)) and not (place / ".model.safetensors.state").exists()
    if name == "finetune" and not done:
        shutil.rmtree(place, ignore_errors=True)
    if not done and (hit or not outcome(place)):
        finished(command(name, place, run, resume=True))
    return outcome(place) == whole


def kills_table() -> str:
    """Tabulate how many kills each command survived to the same bits."""
    runs = read_lines(PATH)
    rows = []
    for name in COMMANDS:
        own = [run for run in runs if run["command"] == name]
        if own:
            rows.append([f"`{name}`", str(len(own)), str(sum(run["identical"] for run in own))])
    return table(["command", "kills", "the same bits"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Kill each command in turn, until there are so many kills in the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run = folder / "run"
        finished([sys.executable, "-m", "brainsurgeon", "prune", "demo", "-s", "0.9", "-m", "mp", "-o", str(run), "-q"])
        known: dict[str, tuple[dict[str, str], float]] = {}
        for number in range(len(read_lines(PATH)), options.kills):
            name = options.commands[number % len(options.commands)]
            if name not in known:
                place = folder / name.replace(" ", "-")
                seconds = finished(command(name, place, run, resume=False))
                known[name] = (outcome(place), seconds)
            whole, seconds = known[name]
            same = bool(whole) and kill_one(name, random.Random(number), folder, run, whole, seconds)
            append(PATH, {"command": name, "number": number, "seconds": round(seconds, 2), "identical": same})
            print(number, name, same, flush=True)


if __name__ == "__main__":
    main()
