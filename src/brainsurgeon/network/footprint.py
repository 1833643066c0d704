"""What a sample takes of memory: its own tensors, and what a pass through the network makes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.along_chain import AlongChain
from brainsurgeon.network.distillation import watched
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.saved import kept_by
from brainsurgeon.samples.batches import Batch, Batches, batch_size, cut, is_one_batch, is_tokens, tensors_of

PROBED = 4
"""Samples of a pass that is measured."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of one sample, and how many there are (infinity where the data does not say).

    `passing` is what a forward pass keeps for the way back, beside the weights; `resident` says that all samples lie in
    memory already. `linear` names the parameters that are linear maps, None where nobody looked; `tokens` says that
    samples are whole numbers, of which a network makes far more than they are. `featured` are the bytes of the layers'
    outputs that a teacher's are compared with, `steps` those of recurrent layers, and `chain` what there is where
    blocks are run one after the other. `on_gpu` says that the work is on a GPU, where more is taken at once and steps
    of training are recorded.
    """

    sample: int = 0
    passing: int = 0
    samples: float = 0.0
    resident: bool = True
    linear: frozenset[str] | None = None
    tokens: bool = False
    featured: int = 0
    steps: int = 1
    chain: AlongChain = field(default_factory=AlongChain)
    on_gpu: bool = False


def footprint(batch_loss: BatchLoss, batch: Batch, data: Any) -> Footprint:
    """Measure a sample by one forward pass of a batch."""
    count = batch_size(batch)
    features: list[int] = []
    hooks = [
        module.register_forward_hook(lambda _, __, output: features.append(output.nbytes))
        for module in watched(batch_loss.model).values()
    ]
    steps = [1]
    recurrent = [module for module in batch_loss.model.modules() if isinstance(module, nn.RNNBase)]
    hooks += [module.register_forward_pre_hook(lambda m, x: steps.append(_steps(m, x[0]))) for module in recurrent]
    try:
        kept = kept_by(batch_loss, batch)
    finally:
        for hook in hooks:
            hook.remove()
    sample = sum(tensor.nbytes for tensor in tensors_of(batch))
    model = batch_loss.model
    linear = frozenset(layer.name for layer in linear_maps(model, [name for name, _ in model.named_parameters()]))
    tokens = is_tokens(batch)
    passing = -(-kept // count)
    featured = -(-sum(features) // count)
    known = (samples_in(data), is_one_batch(data), linear, tokens, featured, max(steps))
    return Footprint(-(-sample // count), passing, *known)


def _steps(module: nn.RNNBase, given: Any) -> int:
    """Return how many steps a recurrent layer takes."""
    if isinstance(given, nn.utils.rnn.PackedSequence):
        return len(given.batch_sizes)
    return int(given.shape[1 if module.batch_first and given.dim() == 3 else 0])


def samples_in(data: Any) -> float:
    """Return how many samples the data holds, infinity where it does not say."""
    if isinstance(data, Batches):
        return sum(map(batch_size, data))
    data = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(data, Dataset):
        return len(data) if hasattr(data, "__len__") else math.inf
    try:
        return batch_size(data)
    except (BrainsurgeonError, TypeError):  # batches in an iterable
        return math.inf


def most_samples(data: Any) -> float:
    """Return how many samples can be read from the data at most, infinity where only reading tells.

    A loader may draw a sample twice, and an iterable may say anything of itself.
    """
    known = is_one_batch(data) or (isinstance(data, Dataset) and not isinstance(data, IterableDataset))
    return samples_in(data) if known else math.inf


def probe(data: Any) -> Batch | None:
    """Return a few samples without using any up, and without a trace in torch's generators; None where there is none.

    Of an iterable that may be read once, and of a loader with workers, nothing is read.
    """
    if is_one_batch(data):
        return cut(data, slice(PROBED))
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        data = DataLoader(data, PROBED)
    if isinstance(data, list | tuple):
        return cut(data[0], slice(PROBED)) if data else None
    if not isinstance(data, DataLoader) or data.num_workers or isinstance(data.dataset, IterableDataset):
        return None
    generators = [g for g in (data.generator, getattr(data.sampler, "generator", None)) if g is not None]
    states = [generator.get_state() for generator in generators]
    with torch.random.fork_rng(devices=[]):
        found = next(iter(data), None)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
    return None if found is None else cut(found, slice(PROBED))
