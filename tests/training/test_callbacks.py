"""The callbacks, with the real packages: exact counts at the end, and a resumed training ends with the same masks."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon import BrainsurgeonError
from brainsurgeon.network.zeros import count_zeros
from brainsurgeon.training.callbacks import FILE, huggingface_callback, lightning_callback

INPUTS, TARGETS = (
    torch.randn(80, 6, generator=torch.Generator().manual_seed(1)),
    torch.randint(3, (80,), generator=torch.Generator().manual_seed(2)),
)
EXACT = 72  # ⌈0.8 · 90⌉


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


class Classifier(nn.Module):
    """A model as Hugging Face's Trainer takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.layers(inputs)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class TestHuggingFace:
    """With `transformers.Trainer`."""

    transformers = None

    @pytest.fixture(autouse=True)
    def _package(self) -> None:
        self.transformers = pytest.importorskip("transformers")
        pytest.importorskip("accelerate")

    def trainer(self, folder: Path, callback: Any, **options: Any) -> Any:
        data = [{"inputs": x, "labels": y} for x, y in zip(INPUTS, TARGETS, strict=True)]
        plain = {"per_device_train_batch_size": 8, "num_train_epochs": 3, "save_steps": 7, "report_to": []}
        args = self.transformers.TrainingArguments(
            str(folder), **plain | {"use_cpu": True, "disable_tqdm": True, "logging_steps": 1000} | options
        )
        return self.transformers.Trainer(
            Classifier(), args, train_dataset=data, eval_dataset=data, callbacks=[callback]
        )

    def test_the_count_is_exact_and_a_checkpoint_resumes_to_the_same_masks(self, tmp_path: Path) -> None:
        callback = huggingface_callback(0.8, cuts=8)
        trainer = self.trainer(tmp_path, callback)
        trainer.train()
        assert callback.pruner.steps == trainer.state.global_step == 30
        assert callback.pruner.done
        assert count_zeros(trainer.model, callback.pruner.masks) == EXACT
        assert (tmp_path / "checkpoint-14" / FILE).is_file()
        again = huggingface_callback(0.8, cuts=8)
        resumed = self.trainer(tmp_path, again)
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-14"))
        assert_same(again.pruner.masks, callback.pruner.masks)
        assert_same(resumed.model.state_dict(), trainer.model.state_dict())

    def test_steps_are_those_of_the_optimizer_with_accumulation(self, tmp_path: Path) -> None:
        callback = huggingface_callback(0.8)
        trainer = self.trainer(tmp_path, callback, gradient_accumulation_steps=2, max_steps=12, save_strategy="no")
        trainer.train()
        assert callback.pruner.steps == callback.pruner.state_dict()["step"] == 12
        assert callback.pruner.count() == EXACT

    def test_a_training_that_ends_early_makes_the_last_cut_and_says_so(self, tmp_path: Path) -> None:
        callback = huggingface_callback(0.8, steps=1000)
        with pytest.warns(UserWarning, match="before the last cut: it was made now"):
            self.trainer(tmp_path, callback, max_steps=5, save_strategy="no").train()
        assert callback.pruner.count() == EXACT

    def test_what_would_undo_the_pruning_is_refused(self, tmp_path: Path) -> None:
        options = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 7}
        trainer = self.trainer(tmp_path, huggingface_callback(0.8), **options)
        with pytest.raises(BrainsurgeonError, match="load_best_model_at_end=True may put back"):
            trainer.train()

    def test_a_checkpoint_without_masks_is_refused(self, tmp_path: Path) -> None:
        self.trainer(tmp_path, self.transformers.TrainerCallback(), max_steps=10).train()
        with pytest.raises(BrainsurgeonError, match=f"there is no {FILE} in .*checkpoint-7: give resume_from"):
            self.trainer(tmp_path, huggingface_callback(0.8)).train(
                resume_from_checkpoint=str(tmp_path / "checkpoint-7")
            )

    def test_a_transformer_is_pruned(self, tmp_path: Path) -> None:
        config = self.transformers.GPT2Config(
            vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
        )
        tokens = torch.randint(20, (40, 8), generator=torch.Generator().manual_seed(0))
        model = self.transformers.GPT2LMHeadModel(config)
        args = self.transformers.TrainingArguments(
            str(tmp_path), max_steps=10, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
        )
        callback = huggingface_callback(0.5, exclude=["*wte*", "*wpe*"], budget="uniform")
        data = [{"input_ids": row, "labels": row} for row in tokens]
        self.transformers.Trainer(model, args, train_dataset=data, callbacks=[callback]).train()
        assert all(int(mask.sum()) * 2 == mask.numel() for mask in callback.pruner.masks.values())
        assert len(callback.pruner.masks) == 4


class TestLightning:
    """With `lightning.pytorch.Trainer`."""

    lightning: Any = None

    @pytest.fixture(autouse=True)
    def _package(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.lightning = pytest.importorskip("lightning.pytorch")
            yield

    def module(self) -> Any:
        class Module(self.lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layers = network()

            def training_step(self, batch: Any, _: int) -> Tensor:
                return F.cross_entropy(self.layers(batch[0]), batch[1])

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)

        return Module()

    def fit(self, folder: Path, callback: Any, checkpoint: Path | None = None, **options: Any) -> tuple[Any, Any]:
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS, TARGETS), 8)
        saving = self.lightning.callbacks.ModelCheckpoint(folder, "{step}", save_top_k=-1, every_n_train_steps=5)
        trainer = self.lightning.Trainer(
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[saving, callback],
            default_root_dir=folder,
            **{"max_epochs": 3} | options,
        )
        module = self.module()
        trainer.fit(module, data, ckpt_path=checkpoint)
        return trainer, module

    def test_the_count_is_exact_and_a_checkpoint_resumes_to_the_same_masks(self, tmp_path: Path) -> None:
        callback = lightning_callback(0.8, cuts=8)
        trainer, module = self.fit(tmp_path, callback)
        assert callback.pruner.steps == trainer.global_step == 30
        assert count_zeros(module, callback.pruner.masks) == EXACT
        again = lightning_callback(0.8, cuts=8)
        _, resumed = self.fit(tmp_path, again, tmp_path / "step=10.ckpt")  # in an epoch Lightning starts the data anew
        assert_same(again.pruner.masks, callback.pruner.masks)
        assert_same(resumed.state_dict(), module.state_dict())

    def test_the_masks_lie_in_the_checkpoint(self, tmp_path: Path) -> None:
        self.fit(tmp_path, lightning_callback(0.8))
        stored = torch.load(tmp_path / "step=25.ckpt", weights_only=True)["callbacks"]["brainsurgeon.Pruner"]
        assert sum(int(mask.sum()) for mask in stored["masks"].values()) == EXACT
        assert stored["step"] == 25

    def test_steps_are_those_of_the_optimizer_with_accumulation(self, tmp_path: Path) -> None:
        callback = lightning_callback(0.8)
        self.fit(tmp_path, callback, accumulate_grad_batches=2)
        assert callback.pruner.steps == callback.pruner.state_dict()["step"] == 15
        assert callback.pruner.count() == EXACT

    def test_a_training_without_an_end_must_be_told_its_steps(self, tmp_path: Path) -> None:
        with pytest.raises(BrainsurgeonError, match="does not know how many steps"):
            self.fit(tmp_path, lightning_callback(0.8), max_epochs=-1)

    def test_a_checkpoint_without_a_state_is_refused(self, tmp_path: Path) -> None:
        self.fit(tmp_path, self.lightning.Callback())
        with pytest.raises(BrainsurgeonError, match="resumes at step 10 from a checkpoint without a Pruner's state"):
            self.fit(tmp_path, lightning_callback(0.8), tmp_path / "step=10.ckpt")


@pytest.mark.parametrize(
    ("make", "package", "advice"),
    [
        (huggingface_callback, "transformers", r"pip install 'transformers\[torch\]'"),
        (lightning_callback, "lightning.pytorch", r"pip install 'brainsurgeon\[lightning\]'"),
    ],
)
def test_a_missing_package_is_named(make: Any, package: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BrainsurgeonError, match=advice):
        make(0.5)
