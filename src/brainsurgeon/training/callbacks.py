"""A `Pruner` in the trainers that people use: a Hugging Face `TrainerCallback` and a Lightning `Callback`.

Each makes the Pruner when training begins, tells it of every optimizer step, and puts its state, masks and all, into
the trainer's own checkpoints. The packages are imported when a callback is asked for.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.sealed import read_sealed, write_sealed
from brainsurgeon.training.pruner import Pruner

FILE, KIND = "brainsurgeon_pruner.safetensors", "pruner"
"""What is written beside the model in a checkpoint of Hugging Face's Trainer."""
TENSORS = ("masks", "resting", "squares")


def huggingface_callback(
    sparsity: float, *, steps: int | None = None, resume_from: str | Path | None = None, **settings: Any
) -> Any:
    """Return a `transformers.TrainerCallback` that prunes while `Trainer` trains; its `pruner` is a `Pruner`.

    Args:
        sparsity: the share of the prunable weights that is gone at the end.
        steps: optimizer steps of the whole training; by default those of the Trainer.
        resume_from: the checkpoint that training resumes from; by default the one of that step in `output_dir`.
        settings: of the `Pruner`, by name.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise BrainsurgeonError("this callback needs transformers: pip install 'transformers[torch]'") from error

    class PruningCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Prune at the end of steps, and keep the masks in every checkpoint."""

        pruner: Pruner | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if args.load_best_model_at_end:
                raise BrainsurgeonError(
                    "load_best_model_at_end=True may put back weights of before the last cut: set it to False, and "
                    "choose among the checkpoints after that"
                )
            total = steps or state.max_steps
            self.pruner = _made(self.pruner, given["model"], given["optimizer"], sparsity, total, settings)
            if state.global_step:
                self.pruner.load_state_dict(_read_state(_checkpoint(args, state, resume_from)))

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            assert self.pruner is not None
            self.pruner.step()

        def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if self.pruner is not None and state.is_world_process_zero:
                _write_state(self.pruner, _checkpoint(args, state, None))

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            assert self.pruner is not None
            _end(self.pruner)

    return PruningCallback()


def lightning_callback(sparsity: float, *, steps: int | None = None, **settings: Any) -> Any:
    """Return a `lightning.pytorch.Callback` that prunes while Lightning's `Trainer` fits; its `pruner` is a `Pruner`.

    Args:
        sparsity: the share of the prunable weights that is gone at the end.
        steps: optimizer steps of the whole training; by default those that the Trainer expects.
        settings: of the `Pruner`, by name.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError as error:
        raise BrainsurgeonError("this callback needs Lightning: pip install 'brainsurgeon[lightning]'") from error

    class PruningCallback(Callback):  # type: ignore[misc, unused-ignore]
        """Prune after batches that ended in a step of the optimizer; the state travels in the checkpoint."""

        pruner: Pruner | None = None
        state_key = "brainsurgeon.Pruner"

        def __init__(self) -> None:
            self._loaded: dict[str, Any] | None = None
            self._seen = 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            total = steps or trainer.estimated_stepping_batches
            self.pruner = _made(self.pruner, pl_module, trainer.optimizers, sparsity, total, settings)
            if self._loaded is not None:
                self.pruner.load_state_dict(self._loaded)
            elif trainer.global_step:
                raise BrainsurgeonError(
                    f"training resumes at step {trainer.global_step} from a checkpoint without a Pruner's state: take "
                    "one that was saved with this callback"
                )
            self._loaded, self._seen = None, trainer.global_step

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            assert self.pruner is not None
            if trainer.global_step > self._seen:  # gradients may have been accumulated only
                self._seen = trainer.global_step
                self.pruner.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            assert self.pruner is not None
            _end(self.pruner)

        def state_dict(self) -> dict[str, Any]:
            return {} if self.pruner is None else self.pruner.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self._loaded = state_dict or None

    return PruningCallback()


def _made(
    old: Pruner | None, model: nn.Module, optimizer: Any, sparsity: float, steps: Any, settings: dict[str, Any]
) -> Pruner:
    """Return the Pruner of a training that begins; that of an earlier one lets go."""
    if old is not None:
        old.remove()
    if steps == float("inf") or steps == -1:
        raise BrainsurgeonError("the trainer does not know how many steps it will take: give steps=… to the callback")
    return Pruner(model, optimizer, sparsity, steps=steps, **settings)


def _end(pruner: Pruner) -> None:
    """Make the last cut where training ended before it, and count."""
    if not pruner.done:
        warnings.warn(
            f"training ended with {pruner.sparsity:.1%} of the weights pruned, before the last cut: it was made now, "
            "and nothing was trained after it",
            stacklevel=2,
        )
        pruner.finish()
    pruner.count()


def _checkpoint(args: Any, state: Any, given: str | Path | None) -> Path:
    return Path(given) if given is not None else Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _write_state(pruner: Pruner, folder: Path) -> None:
    state = pruner.state_dict()
    tensors = {f"{part}/{name}": tensor for part in TENSORS for name, tensor in state[part].items()}
    write_sealed(tensors, folder / FILE, KIND, {"step": state["step"], "settings": state["settings"]})


def _read_state(folder: Path) -> dict[str, Any]:
    if not (folder / FILE).is_file():
        raise BrainsurgeonError(
            f"training resumes, and there is no {FILE} in {folder}: give resume_from=… the checkpoint's folder to the "
            "callback, one that was saved with it"
        )
    tensors, info, _ = read_sealed(folder / FILE, KIND)
    state: dict[str, Any] = {"step": info["step"], "settings": info["settings"], **{part: {} for part in TENSORS}}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        state[part][name] = tensor
    return state
