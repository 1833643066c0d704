"""Both costs of a small instance relaxed, weakly and well, beside the true cost of every set."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from toys import make_toy

from brainsurgeon.exact import Instance
from brainsurgeon.exact.joint_relaxation import rough_joint, tight_joint
from brainsurgeon.exact.selection_relaxation import rough_selection, tight_selection
from brainsurgeon.exact.tangent import Relaxation

N, COUNT = 9, 4
POINTS = np.array([np.isin(np.arange(N), P) for P in combinations(range(N), COUNT)])


def make(seed: int, K: int = 6) -> Instance:
    toy = make_toy(seed, K, N)
    return Instance.from_gradients(toy.G, toy.w, 0.02, 0.1 * np.random.default_rng(seed).normal(size=N))


def relaxations(instance: Instance) -> list[tuple[Relaxation, np.ndarray]]:
    """Both costs, with a weak and with the best split, and the true cost of every set."""
    M, c = instance.quadratic_form, instance.linear_form
    selection = np.array([instance.selection_cost(P) for P in POINTS])
    joint = np.array([instance.joint_cost(P) for P in POINTS])
    return [
        (rough_selection(M, c, COUNT), selection),
        (tight_selection(M, c, COUNT, float(np.ptp(selection))), selection),
        (rough_joint(instance, COUNT), joint),
        (tight_joint(instance, COUNT, float(joint.min() - instance.floor)), joint),
    ]
