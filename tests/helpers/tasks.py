"""The table of tasks: real small networks × what is done with them. `docs/your-model.md` shows it; one source for both.

A cell is "yes", or the words with which the call is refused; `tests/pruning/test_tasks.py` does every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

YES = "yes"
COLUMNS = ("auto, quick", "layerwise", "cbs", "gradual", "without labels", "saved and loaded", "CSR", "ONNX", "metric")


class Unet(nn.Module):
    """Down, up again by a transposed convolution, and a bridge; scores of classes for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.norm, self.up = nn.BatchNorm2d(12), nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.last = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = torch.relu(self.first(x))
        coarse = torch.relu(self.norm(self.down(nn.functional.max_pool2d(fine, 2))))
        return self.last(torch.cat([fine, torch.relu(self.up(coarse))], 1))


class Lstm(nn.Module):
    """Tokens, a recurrent layer, and its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(20, 6), nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.cell(self.embedding(tokens))[0][:, -1])


class Vit(nn.Module):
    """Patches by a convolution, two transformer layers, the mean of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, stride=4)
        layer = nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of two thin ones beside it."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


def _cnn() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 16, 4))


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = BertConfig(vocab_size=30, num_labels=3, max_position_embeddings=16, **sizes)
    return BertForSequenceClassification(config)


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return LlamaForCausalLM(LlamaConfig(vocab_size=30, max_position_embeddings=16, **sizes))


def _drawn(*parts: tuple[int, ...] | int) -> Any:
    """Draw a tensor of normal numbers for each shape, and of whole numbers below the first entry for (-n, *shape)."""
    generator = torch.Generator().manual_seed(0)
    made = [
        torch.randint(-shape[0], shape[1:], generator=generator)
        if shape[0] < 0
        else torch.randn(shape, generator=generator)
        for shape in parts  # type: ignore[union-attr]
    ]
    return made[0] if len(made) == 1 else tuple(made)


def _labelled() -> dict[str, Tensor]:
    tokens, labels = _drawn((-30, 64, 8), (-3, 64))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def _unlabelled() -> dict[str, Tensor]:
    return {name: value for name, value in _labelled().items() if name != "labels"}


@dataclass(frozen=True)
class Task:
    """A network with its data, with and without labels, its loss, what else `prune` is given, and what is refused."""

    make: Callable[[], nn.Module]
    data: Callable[[], Any]
    loss: str
    score: str
    inputs: Callable[[Any], Any] = lambda data: data[0]
    settings: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    match: str = "match:classes"

    def model(self) -> nn.Module:
        """Return the network, the same each time, in evaluation mode."""
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return self.make().eval()

    def cell(self, column: str) -> str:
        """Return what the table says."""
        return self.refused.get(column, YES)


TASKS: dict[str, Task] = {
    "tabular regression (MLP)": Task(
        lambda: nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1)),
        lambda: _drawn((64, 10), (64, 1)),
        "mse",
        "r2",
        match="match",
    ),
    "images (CNN)": Task(_cnn, lambda: _drawn((64, 3, 8, 8), (-4, 64)), "cross_entropy", "accuracy"),
    "segmentation (U-Net)": Task(Unet, lambda: _drawn((40, 3, 8, 8), (-3, 40, 8, 8)), "cross_entropy", "iou"),
    "images (ViT)": Task(Vit, lambda: _drawn((64, 3, 8, 8), (-4, 64)), "cross_entropy", "accuracy"),
    "sequences (LSTM)": Task(Lstm, lambda: _drawn((-20, 64, 7), (-3, 64)), "cross_entropy", "accuracy"),
    "text classes (BERT of Hugging Face)": Task(
        _bert,
        _labelled,
        "model",
        "accuracy",
        lambda _: _unlabelled(),
        {"exclude": ["*embeddings*"]},
        {"gradual": "gradual pruning must see the model's outputs"},
        match="match",
    ),
    "language model (Llama of Hugging Face)": Task(
        _llama,
        lambda: _drawn((-30, 24, 8)),
        "next_token",
        "perplexity",
        lambda data: data,
        {"exclude": ["lm_head"]},
        match="match",
    ),
    "adapters on a frozen base (LoRA)": Task(
        lambda: nn.Sequential(Adapted(8, 16), nn.ReLU(), Adapted(16, 3)),
        lambda: _drawn((64, 8), (-3, 64)),
        "cross_entropy",
        "accuracy",
        settings={"include": "*.base_layer.weight"},
    ),
}


@cache
def markdown() -> str:
    """Return the table as the documentation shows it; a footnote for each kind of refusal."""
    words = list(dict.fromkeys(text for task in TASKS.values() for text in task.refused.values()))
    lines = [f"| task | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for name, task in TASKS.items():
        cells = [
            YES if (cell := task.cell(column)) == YES else f"refused ({words.index(cell) + 1})" for column in COLUMNS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    notes = [f"{number}. “{text} …”" for number, text in enumerate(words, 1)]
    return "\n".join([*lines, "", *notes])
