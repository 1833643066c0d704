"""Pack a fetched data set as npz files, in several parts for machines that take only small files.

Usage: python experiments/pack_data.py cifar10 OUTPUT_FOLDER --parts 3
"""

import argparse
from pathlib import Path

import numpy as np

from brainsurgeon.paper.datasets import load


def main() -> None:
    """Write OUTPUT_FOLDER/NAME-1.npz and so on; each holds a share of every array."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", type=int, default=1)
    options = parser.parse_args()
    data = load(options.name)
    options.folder.mkdir(parents=True, exist_ok=True)
    keys = [f"{part}_{kind}" for part in ("train", "test") for kind in ("inputs", "targets")]
    shares = {key: np.array_split(getattr(data, key).numpy().astype(np.uint8), options.parts) for key in keys}
    for part in range(options.parts):
        path = options.folder / f"{options.name}-{part + 1}.npz"
        np.savez_compressed(path, **{key: arrays[part] for key, arrays in shares.items()})
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
