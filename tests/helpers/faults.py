"""Faults of the paper's methods, of runs in stages and of files that a planted-faults run puts into the source."""

from __future__ import annotations

from dataclasses import dataclass

STAGED = "tests/pruning/staged"


@dataclass(frozen=True)
class Fault:
    """What is wrong, where, and who should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str


FAULTS = [
    Fault(
        "momentum dropped in training",
        "pruning/staged/descent.py",
        "speed = MOMENTUM * speed - ",
        "speed = -",
        f"{STAGED}/test_descent.py",
    ),
    Fault(
        "deadline of training ignored",
        "pruning/staged/descent.py",
        "min(ours, affordable)",
        "ours",
        f"{STAGED}/test_descent.py",
    ),
    Fault(
        "gradients owed to later stages taken",
        "pruning/staged/descent.py",
        "left - some - self.owed(state)",
        "left - some",
        f"{STAGED}/test_descent.py",
    ),
    Fault(
        "gradients that scale the steps not counted",
        "pruning/staged/descent.py",
        "gradients=state.gradients + some)",
        "gradients=state.gradients)",
        f"{STAGED}/test_descent.py",
    ),
    Fault(
        "seed ignored by searches in stages",
        "pruning/staged/stage.py",
        "generator_of(self.seed + state.number)",
        "generator_of(state.number)",
        f"{STAGED}/test_stage.py",
    ),
    Fault(
        "gradients counted by rows",
        "pruning/staged/stage.py",
        "taken += found.rows * self._rows(batches).group",
        "taken += found.rows",
        f"{STAGED}/test_stage.py",
    ),
    Fault(
        "the same batches in every training",
        "pruning/staged/descent.py",
        "self.samples.draw_again(count, number)",
        "self.samples.draw_again(count, 0)",
        f"{STAGED}/test_descent.py",
    ),
    Fault(
        "divergence over the wrong axis",
        "network/loss.py",
        "return temperature**2 * (p.exp() * (p - q)).sum(axis).mean()",
        "return temperature**2 * (p.exp() * (p - q)).sum(-1).mean()",
        "tests/network/test_loss.py",
    ),
    Fault(
        "paired test without its root",
        "network/sample_loss.py",
        " * difference.std() / math.sqrt(batches)",
        " * difference.std()",
        "tests/network/test_sample_loss.py",
    ),
    Fault(
        "paired test by the variance of a sum",
        "network/sample_loss.py",
        "/ math.sqrt(batches)",
        "/ batches",
        "tests/network/test_sample_loss.py",
    ),
    Fault(
        "negative weights taken for zeros",
        "network/zeros.py",
        "(model.get_parameter(name) == 0)",
        "(model.get_parameter(name) <= 0)",
        "tests/network/test_zeros.py",
    ),
    Fault(
        "negative weights not counted as lost",
        "network/zeros.py",
        "(parameter[mask.to(parameter.device)] != 0)",
        "(parameter[mask.to(parameter.device)] > 0)",
        "tests/network/test_zeros.py",
    ),
    Fault(
        "solve without refinement",
        "engine/curvature/fisher.py",
        "return once + self._apply_inverse(factor, b - self.product(once))",
        "return once",
        "tests/engine/curvature/test_fisher.py",
    ),
    Fault(
        "update without refinement",
        "engine/curvature/compensation.py",
        "        full[kept] += self._apply(None, -residual)\n",
        "",
        "tests/engine/curvature/test_compensation.py",
    ),
    Fault(
        "what the whole inverse gives on P not taken back",
        "engine/curvature/kept_rows.py",
        "(free - self._times(self.inverse(), back))",
        "free",
        "tests/engine/curvature/test_kept_rows.py",
    ),
    Fault(
        "the dense network's inputs taken from the pruned one",
        "network/side_by_side.py",
        "zip(part.inputs(layer, number), twin.inputs(other, number), strict=True)",
        "zip(part.inputs(layer, number), part.inputs(layer, number), strict=True)",
        "tests/network/test_side_by_side.py",
    ),
    Fault(
        "stiffness left out of γ",
        "engine/selection/pool.py",
        "stiffness * quadratic.gamma(",
        "quadratic.gamma(",
        "tests/engine/selection/test_pool.py",
    ),
    Fault(
        "type left out of a checksum",
        "files/sealed.py",
        "[name, str(tensor.dtype), list(tensor.shape)]",
        "[name, list(tensor.shape)]",
        "tests/files/test_sealed.py",
    ),
    Fault(
        "shape left out of a checksum",
        "files/sealed.py",
        "[name, str(tensor.dtype), list(tensor.shape)]",
        "[name, str(tensor.dtype)]",
        "tests/files/test_sealed.py",
    ),
    Fault(
        "training on held-out samples",
        "pruning/staged/descent.py",
        "batches = self.samples.draw_again(count, number)",
        "batches = [*self.samples.draw_again(count, number), *self.samples.held_out()]",
        f"{STAGED}/test_descent.py",
    ),
    Fault(
        "steps scaled on held-out samples",
        "pruning/staged/descent.py",
        "self.samples.draw(some, state.number), some)",
        "self.samples.held_out(), some)",
        f"{STAGED}/test_descent.py",
    ),
    Fault(
        "layers reconstructed on held-out samples",
        "pruning/staged/stage.py",
        "best = self._reconstructed(best, batches)",
        "best = self._reconstructed(best, self.samples.held_out())",
        f"{STAGED}/test_stage.py",
    ),
    Fault(
        "loss examined on held-out samples",
        "pruning/staged/stage.py",
        "batches = list(self.samples.draw(self.pacing.share(state), state.number))",
        "batches = self.samples.held_out()",
        f"{STAGED}/test_stage.py",
    ),
    Fault(
        "repair multiplied by the step length",
        "pruning/staged/candidates.py",
        "step = repair + end.length(name) * newton",
        "step = end.length(name) * (repair + newton)",
        f"{STAGED}/test_candidates.py",
    ),
    Fault(
        "search from plain draws where gradients are dear",
        "engine/selection/recentred_search.py",
        "dear=cheap < LEAST_STEPS",
        "dear=cheap > MOST_STEPS",
        "tests/engine/selection/test_recentred_search.py",
    ),
    Fault(
        "gradient of the recentred search never taken anew",
        "engine/selection/recentred_search.py",
        "pruned, drift, refused, reach = masks[best], None, False, REACH * taken",
        "pruned, refused, reach = masks[best], False, REACH * taken",
        "tests/engine/selection/test_recentred_search.py",
    ),
    Fault(
        "reduced costs doubled where weights are decided",
        "exact/branch.py",
        "(lower[:, None] + flip >= self.target)",
        "(lower[:, None] + 2 * flip >= self.target)",
        "tests/exact/test_branch.py",
    ),
    Fault(
        "reduced costs doubled where nodes are opened",
        "exact/branch.py",
        "bound = max(lower[row] + rise, floor[row])",
        "bound = max(lower[row] + 2 * rise, floor[row])",
        "tests/exact/test_branch.py",
    ),
    Fault(
        "bound without its floor",
        "exact/branch.py",
        "bound = max(lower[row] + rise, floor[row])",
        "bound = lower[row] + rise",
        "tests/exact/test_branch.py",
    ),
    Fault(
        "out of memory, and one half lost",
        "network/gradients.py",
        "for half in (slice(count // 2), slice(count // 2, None))]",
        "for half in (slice(count // 2), slice(count // 2))]",
        "tests/network/test_gradients.py",
    ),
    Fault(
        "out of memory not met",
        "network/gradients.py",
        "        if count == 1:\n            raise\n",
        "        raise\n",
        "tests/network/test_gradients.py",
    ),
    Fault(
        "a call that depends on earlier ones",
        "pruning/one_shot.py",
        "quadratic = found.quadratic.renewed() if asked",
        "quadratic = found.quadratic if asked",
        "tests/pruning/test_surgery.py",
    ),
    Fault(
        "a pass that counts changes the model",
        "network/modes.py",
        "            with buffers_kept(model):\n                yield",
        "            yield",
        "tests/network/test_buffers.py",
    ),
    Fault(
        "loss measured in training mode",
        "pruning/finish.py",
        "evaluated(model, device), torch.no_grad()",
        "torch.no_grad()",
        "tests/pruning/test_finish.py",
    ),
    Fault(
        "iterators read twice",
        "samples/batches.py",
        "return Replay(data) if isinstance(data, Iterator) else data",
        "return data",
        "tests/pruning/test_surgery.py",
    ),
]
