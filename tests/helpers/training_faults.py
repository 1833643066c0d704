"""Faults of training steps and their records, of trust in a teacher, of samples, and of sequences in pieces."""

from __future__ import annotations

from helpers.faults import Fault

GRADUAL = "tests/pruning/gradual"

TRAINING_FAULTS = [
    Fault(
        "a resumed optimizer without its moments",
        "pruning/gradual/step.py",
        "torch.empty_like(like, requires_grad=False).copy_(tensor)",
        "torch.zeros_like(like, requires_grad=False)",
        f"{GRADUAL}/test_step.py",
    ),
    Fault(
        "the plan's learning rate not given to the optimizer",
        "pruning/gradual/loop.py",
        "set_rate(optimizer, self.rate * self.plan.rate(share))",
        "set_rate(optimizer, self.rate)",
        f"{GRADUAL}/test_loop.py",
    ),
    Fault(
        "the decay of many samples where they are few",
        "pruning/gradual/loop.py",
        "weight_decay=0.0 if few else DECAY)",
        "weight_decay=DECAY)",
        f"{GRADUAL}/test_loop.py",
    ),
    Fault(
        "a record of steps believed though it differs",
        "pruning/gradual/recorded.py",
        "apart <= APART * change",
        "apart <= 40 * APART * change",
        f"{GRADUAL}/test_recorded.py",
    ),
    Fault(
        "a batch of another form given to a record of steps",
        "pruning/gradual/recorded.py",
        "if record is None or not _alike(record.place, batch):",
        "if record is None:",
        f"{GRADUAL}/test_recorded.py",
    ),
    Fault(
        "a tensor that a recording has replaced is not noticed",
        "pruning/gradual/recorded.py",
        "before[name].data_ptr() == after[name].data_ptr()",
        "before[name].shape == after[name].shape",
        f"{GRADUAL}/test_recorded.py",
    ),
    Fault(
        "every part of a shared batch weighed alike",
        "pruning/gradual/ranks.py",
        "sum_over_ranks(numbers * self.weight)",
        "sum_over_ranks(numbers / world_size())",
        f"{GRADUAL}/test_ranks.py",
    ),
    Fault(
        "running statistics that every rank keeps for itself",
        "pruning/gradual/ranks.py",
        "            buffer.copy_(mean.view_as(buffer))\n",
        "            pass\n",
        f"{GRADUAL}/test_ranks.py",
    ),
    Fault(
        "a rank that ends training by its own clock",
        "pruning/gradual/loop.py",
        "by_time = agreed((time.monotonic() - self._begun) / max(self.deadline - self._begun, 1e-9))",
        "by_time = (time.monotonic() - self._begun) / max(self.deadline - self._begun, 1e-9)",
        f"{GRADUAL}/test_ranks.py",
    ),
    Fault(
        "a layer lost as a whole",
        "pruning/layerwise/allocate.py",
        "min(size - 1, math.floor(most * size))",
        "size",
        "tests/pruning/layerwise/test_allocate.py",
    ),
    Fault(
        "the same cap of a layer at any sparsity",
        "pruning/layerwise/allocate.py",
        "max(MOST, 1 - SPARED * (1 - share))",
        "MOST",
        "tests/pruning/layerwise/test_allocate.py",
    ),
    Fault(
        "weights that were gone before are kept by a later cut",
        "pruning/gradual/student.py",
        "score.masked_fill_(self.gone[name], -1.0)",
        "score.clone()",
        f"{GRADUAL}/test_student.py",
    ),
    Fault(
        "running means of losses that forget too much",
        "network/distillation.py",
        "else other])), 1 - REMEMBERED)",
        "else other])), REMEMBERED)",
        "tests/network/test_distillation.py",
    ),
    Fault(
        "a device asked about the teacher at every step",
        "network/distillation.py",
        "if self.losses is not None and self.steps % ASKED == 0:",
        "if self.losses is not None:",
        "tests/network/test_distillation.py",
    ),
    Fault(
        "a rate below the usual one taken where it is hardly better",
        "pruning/gradual/rates.py",
        "worth = WORTH if near and way < 0 and best <= USUAL else 1.0",
        "worth = 1.0",
        f"{GRADUAL}/test_rates.py",
    ),
    Fault(
        "a state of training that is not finite goes on",
        "pruning/gradual/loop.py",
        "if not bool(torch.stack(largest).isfinite().all()):",
        "if not bool(torch.stack(largest).isfinite().any()):",
        f"{GRADUAL}/test_loop.py",
    ),
    Fault(
        "features weighed by their variance",
        "network/distillation.py",
        "[1 / (features.float().var() + 1e-8) for features in theirs]",
        "[features.float().var() for features in theirs]",
        "tests/network/test_distillation.py",
    ),
    Fault(
        "no more held out of many samples than of few",
        "samples/held_out.py",
        "max(count // 10, min(count // 5, wanted))",
        "min(count // 5, wanted)",
        "tests/samples/test_held_out.py",
    ),
    Fault(
        "samples brought to a device in another order",
        "samples/held_out.py",
        "self._move(data_part(self._data, self._order))",
        "self._move(data_part(self._data, self._order.sort().values))",
        "tests/samples/test_held_out.py",
    ),
    Fault(
        "tokens predicted from themselves",
        "network/token_loss.py",
        "target = tokens[some, places.start + 1 : places.stop + 1].flatten()",
        "target = tokens[some, places].flatten()",
        "tests/network/test_token_loss.py",
    ),
    Fault(
        "every piece of a sequence weighed alike",
        "network/places.py",
        "(slice(start, end + 1), (end - start) / last)",
        "(slice(start, end + 1), places / last)",
        "tests/network/test_places.py",
    ),
    Fault(
        "the tail of a piece taken for that of the sequence",
        "network/along_chain.py",
        "int(piece / share) // count",
        "piece // count",
        "tests/network/test_along_chain.py",
    ),
]
