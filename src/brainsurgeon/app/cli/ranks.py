"""`brainsurgeon prune` under `torchrun`: all processes work, and only the first one tells and writes the folder."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from brainsurgeon.errors import BrainsurgeonError


@dataclass(frozen=True)
class Place:
    """Where a process keeps its run: a new folder or one to go on in, and whether it is the one that tells."""

    output: Path | None
    resume: Path | None
    first: bool = True


@contextmanager
def joined(output: Path | None, resume: Path | None) -> Iterator[Place]:
    """Join the other processes, if `torchrun` started any, for as long as the run lasts.

    All but the first work in a folder of their own, which is gone afterwards; one that goes on from an old run copies
    what that has before the first process writes there.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield Place(output, resume)
        return
    from brainsurgeon import distributed

    distributed.start()
    try:
        if distributed.is_first():
            distributed.barrier()
            yield Place(output, resume)
            distributed.barrier()  # the others have read all they need of a model that may be in this folder
            return
        with tempfile.TemporaryDirectory(prefix="brainsurgeon-rank-") as own:
            folder = Path(own) / "run"
            if resume is not None:
                shutil.copytree(resume, folder, ignore=shutil.ignore_patterns(".lock"))
            distributed.barrier()
            yield Place(None if resume else folder, folder if resume else None, first=False)
            distributed.barrier()
    finally:
        distributed.stop()


def check_methods(names: list[str]) -> None:
    """Refuse methods that know nothing of ranks: each process would do all of the work by itself."""
    from brainsurgeon import distributed
    from brainsurgeon.pruning.methods import make_method

    if distributed.world_size() > 1 and (alone := [name for name in names if not make_method(name).shares_work]):
        raise BrainsurgeonError(
            f"method {alone[0]!r} does not share its work out among {distributed.world_size()} processes: take "
            '"layerwise", "wanda", "sparsegpt", "gradual" or "auto", or start the command without torchrun'
        )
