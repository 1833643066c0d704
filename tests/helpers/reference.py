"""The paper, dense and slow: every formula as it is printed, in float64, to be read next to it.

Nothing here is shared with the package. Sets of weights are sorted lists of indices, vectors and matrices are
NumPy arrays, and H is a full N×N matrix. The slips of the paper are mended: w* = w̄ + δw*, and a weight is
zero where y = 1.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import numpy as np

Array = np.ndarray
Loss = Callable[[list[int]], float]


# ---- The Hessian (appendix C)


def fisher(G: Array, damping: float) -> Array:
    """H = GᵀG/K + λI."""
    K, N = G.shape
    return G.T @ G / K + damping * np.eye(N)


def block_diagonal(H: Array, blocks: Iterable[slice]) -> Array:
    """H with every entry between two blocks at zero."""
    kept = np.zeros_like(H)
    for block in blocks:
        kept[block, block] = H[block, block]
    return kept


def woodfisher_recursion(G: Array, damping: float) -> Array:
    """H⁻¹ by WoodFisher's recursion: one rank-one correction a gradient."""
    K, N = G.shape
    inverse = np.eye(N) / damping
    for g in G:
        image = inverse @ g
        inverse = inverse - np.outer(image, image) / (K + g @ image)
    return inverse


def woodbury(G: Array, damping: float) -> Array:
    """H⁻¹ in closed form: (I − Gᵀ(KλI + GGᵀ)⁻¹G)/λ."""
    K, N = G.shape
    return (np.eye(N) - G.T @ np.linalg.solve(K * damping * np.eye(K) + G @ G.T, G)) / damping


# ---- CBS-U and OBS (section 6, appendix A)


def obs_step(H: Array, w: Array, P: Sequence[int], linear: Array | None = None) -> Array:
    """Minimise aᵀd + ½dᵀHd subject to d_i = −w_i on P, by the KKT system of the Lagrangian."""
    N, m = len(w), len(P)
    E = np.eye(N)[:, list(P)]
    system = np.block([[H, E], [E.T, np.zeros((m, m))]])
    a = np.zeros(N) if linear is None else linear
    return np.linalg.solve(system, np.concatenate([-a, -w[list(P)]]))[:N]


def obs_single(H: Array, w: Array, q: int) -> Array:
    """Classic OBS: δw = −(w_q/[H⁻¹]_qq) H⁻¹e_q."""
    inverse = np.linalg.inv(H)
    return -w[q] / inverse[q, q] * inverse[:, q]


def independent_step(H: Array, w: Array, P: Sequence[int]) -> Array:
    """WoodFisher's update: the sum of the single ones, with the pruned weights at zero in the end."""
    step = sum((obs_single(H, w, q) for q in P), np.zeros_like(w))
    step[list(P)] = -w[list(P)]
    return step


def step_cost(H: Array, d: Array, linear: Array | None = None) -> float:
    """Q(d) = aᵀd + ½dᵀHd."""
    return float(d @ H @ d / 2 + (0.0 if linear is None else linear @ d))


def joint_cost(H: Array, w: Array, P: Sequence[int]) -> float:
    """½ w_Pᵀ([H⁻¹]_PP)⁻¹w_P: the cost of P after the best update of the rest."""
    P = list(P)
    inverse = np.linalg.inv(H)
    return float(w[P] @ np.linalg.solve(inverse[np.ix_(P, P)], w[P]) / 2) if P else 0.0


def woodfisher_scores(H: Array, w: Array) -> Array:
    """w_i²/(2[H⁻¹]_ii)."""
    return w**2 / (2 * np.diag(np.linalg.inv(H)))


# ---- CBS-S (section 3)


def selection_cost(H: Array, w: Array, P: Sequence[int]) -> float:
    """½ Σ_{i∈P} Σ_{j∈P} w_iH_ijw_j."""
    return sum(w[i] * H[i, j] * w[j] for i in P for j in P) / 2


def brute_force(cost: Callable[[Sequence[int]], float], N: int, count: int) -> tuple[float, tuple[int, ...]]:
    """Return the smallest cost over all sets of `count` weights, and such a set."""
    return min((cost(P), P) for P in combinations(range(N), count))


def best_selection(H: Array, w: Array, count: int) -> tuple[float, tuple[int, ...]]:
    """CBS-S to optimality."""
    return brute_force(lambda P: selection_cost(H, w, P), len(w), count)


def best_joint(H: Array, w: Array, count: int) -> tuple[float, tuple[int, ...]]:
    """CBS (selection and update together) to optimality."""
    return brute_force(lambda P: joint_cost(H, w, P), len(w), count)


# ---- Algorithm 1


def gamma(H: Array, w: Array, i: int, j: int) -> float:
    """Line 12."""
    return w[i] * H[i, j] * w[j] + w[j] * H[j, i] * w[i]


def alpha(H: Array, w: Array, P: Sequence[int], i: int) -> float:
    """Line 7."""
    return w[i] * H[i, i] * w[i] + sum(gamma(H, w, i, j) for j in P if j != i)


def beta(H: Array, w: Array, P: Sequence[int], j: int) -> float:
    """Line 11."""
    return w[j] * H[j, j] * w[j] + sum(gamma(H, w, i, j) for i in P)


def algorithm_1(
    H: Array,
    w: Array,
    P: Sequence[int],
    loss: Loss,
    eps: float,
    tau: int,
    rho: int,
    steps_max: int,
    noimp_max: int,
    reorder: bool = True,
) -> list[int]:
    """The local search, line by line; without `reorder` the π and θ of the first step serve in all.

    Weights that are swapped then take one another's places.
    """
    P = sorted(P)
    P_F, s_improv = P, 0
    order: tuple[list[int], list[int]] | None = None
    for s in range(1, steps_max + 1):
        if order is None or reorder:
            order = sequences(H, w, P)
        I, J = algorithm_1_step(H, w, P, eps, tau, rho, order)  # noqa: E741
        if not I:  # lines 15 and 27 to 29
            return P_F
        P = sorted((set(P) | set(J)) - set(I))
        places = dict(zip(I, J, strict=True)) | dict(zip(J, I, strict=True))
        order = ([places.get(k, k) for k in order[0]], [places.get(k, k) for k in order[1]])
        if loss(P) < loss(P_F):
            P_F, s_improv = P, s
        elif s - s_improv > noimp_max:
            return P_F
    return P_F


def sequences(H: Array, w: Array, P: Sequence[int]) -> tuple[list[int], list[int]]:
    """Lines 9 and 13: π and θ."""
    pi = sorted(P, key=lambda i: -alpha(H, w, P, i))
    rest = [j for j in range(len(w)) if j not in P]
    theta = sorted(rest, key=lambda j: beta(H, w, P, j) - gamma(H, w, pi[0], j)) if pi else rest
    return pi, theta


def algorithm_1_step(
    H: Array,
    w: Array,
    P: Sequence[int],
    eps: float,
    tau: int,
    rho: int,
    order: tuple[list[int], list[int]] | None = None,
) -> tuple[list[int], list[int]]:
    """Lines 5 to 26: the weights I that come back and the weights J that go in their place."""
    I: list[int] = []  # noqa: E741
    J: list[int] = []
    rest = [j for j in range(len(w)) if j not in P]
    if not P or not rest:
        return I, J
    a = {i: alpha(H, w, P, i) for i in P}
    b = {j: beta(H, w, P, j) for j in rest}
    pi, theta = sequences(H, w, P) if order is None else order
    if b[theta[0]] - gamma(H, w, pi[0], theta[0]) - a[pi[0]] > -eps:
        return I, J
    c = 0
    for ii, i in enumerate(pi):
        c += 1
        for j in theta[max(0, ii - rho) : ii + rho + 1]:
            if j in J:
                continue
            gain_j = b[j] + sum(gamma(H, w, j, k) for k in J) - sum(gamma(H, w, k, j) for k in I)
            gain_i = a[i] + sum(gamma(H, w, i, k) for k in J) - sum(gamma(H, w, i, k) for k in I)
            if gain_j - gamma(H, w, i, j) - gain_i <= -eps:
                I.append(i)
                J.append(j)
                c -= 1
                break
        if c >= tau:
            break
    return I, J


# ---- Algorithm 2


def algorithm_2_draw(w: Array, deal: Sequence[Sequence[int]], shares: Sequence[int]) -> list[int]:
    """Lines 5 to 12 for buckets already dealt: magnitude pruning of `shares[k]` in bucket `deal[k]`."""
    Q: list[int] = []
    for bucket, share in zip(deal, shares, strict=True):
        Q += sorted(bucket, key=lambda i: abs(w[i]))[:share]
    return sorted(Q)


def algorithm_2(
    w: Array, deals: Sequence[Sequence[Sequence[int]]], shares: Sequence[Sequence[int]], loss: Loss
) -> list[int]:
    """The randomised construction for deals already made: the draw of smallest loss, the first of equals."""
    P: list[int] | None = None
    for deal, share in zip(deals, shares, strict=True):
        Q = algorithm_2_draw(w, deal, share)
        if P is None or loss(Q) < loss(P):
            P = Q
    assert P is not None
    return P
