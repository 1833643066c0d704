"""Pack a fetched data set as npz files, in several parts for machines that take only small files.

python -m experiments.pack_data cifar10 OUTPUT_FOLDER --parts 3
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brainsurgeon.paper.datasets import load


def main(arguments: Sequence[str] | None = None) -> None:
    """Write OUTPUT_FOLDER/NAME-1.npz and so on; each holds a share of every array."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", type=int, default=1)
    options = parser.parse_args(arguments)
    data = load(options.name)
    options.folder.mkdir(parents=True, exist_ok=True)
    keys = [f"{part}_{kind}" for part in ("train", "test") for kind in ("inputs", "targets")]
    shares = {key: np.array_split(getattr(data, key).numpy().astype(np.uint8), options.parts) for key in keys}
    for part in range(options.parts):
        path = options.folder / f"{options.name}-{part + 1}.npz"
        arrays: dict[str, Any] = {key: parts[part] for key, parts in shares.items()}
        np.savez_compressed(path, **arrays)
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
