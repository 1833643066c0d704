"""Layer-wise pruning of whole networks: exact in every pattern and budget, and the same in parts as in one piece."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cases import CASES, PackedAttention, seeded
from networks import BATCH, BY_NAME, NETWORKS, SAMPLES, Network, maps_of
from stores import KilledError, Parts
from torch import Tensor, nn

from brainsurgeon import BrainsurgeonError, PruningResult, Surgery, prune
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.engine.layer.patterns import parse_pattern
from brainsurgeon.engine.selection import WoodFisher
from brainsurgeon.engine.update import Joint
from brainsurgeon.network.partition import Chain
from brainsurgeon.pruning.layerwise import method as method_module
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.layerwise.solvers import Selected

METHODS = ["layerwise", "wanda", "sparsegpt"]
PATTERNS = ["unstructured", "row", "2:4", "4x4"]
BUDGETS: list[Any] = ["global", "uniform", {"0.weight": 0.5}]
every_method = pytest.mark.parametrize("method", METHODS)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 4))


def data(samples: int = 48) -> tuple[Tensor, Tensor]:
    return seeded(lambda: (torch.randn(samples, 8) * torch.arange(1, 9), torch.randint(4, (samples,))), 1)


def model() -> nn.Module:
    return seeded(network, 0)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def assert_pattern(result: PruningResult, pattern: str) -> None:
    shape = parse_pattern(pattern)
    for layer in maps_of(result.model):
        mask = result.masks[layer.name]
        assert (layer.weight[mask] == 0).all()
        assert (layer.weight[~mask] != 0).all()
        assert shape.feasible(layer.rows(mask)[0], int(mask.sum()))


@pytest.mark.parametrize("sparsity", [0.5, 0.37])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
@every_method
def test_counts_are_exact_for_every_budget_pattern_and_method(
    method: str, pattern: str, budget: Any, sparsity: float
) -> None:
    if pattern == "2:4" and sparsity != 0.5:
        with pytest.raises(BrainsurgeonError, match=r"2:4 means a sparsity of 0\.5"):
            prune(model(), data(), sparsity, method, pattern=pattern, budget=budget)
        return
    result = prune(model(), data(), sparsity, method, pattern=pattern, budget=budget, progress=False)
    asked, size = exact_count(sparsity, result.size), result.size
    assert_pattern(result, pattern)
    assert result.pruned == sum(int(mask.sum()) for mask in result.masks.values())
    if pattern != "4x4":
        assert result.pruned == asked
    else:
        shares = {"global": 1, "uniform": 3}.get(str(budget), 2)
        assert asked <= result.pruned < asked + 16 * shares
        assert any("blocks of 16 weights" in note and str(result.pruned) in note for note in result.notes)
    counts = {name: int(mask.sum()) for name, mask in result.masks.items()}
    if budget == "uniform" and pattern in ("unstructured", "row"):
        assert all(abs(counts[n] - asked * m.numel() / size) < 1 for n, m in result.masks.items())
    if isinstance(budget, dict):
        assert counts["0.weight"] == 48


@every_method
def test_a_budget_that_n_of_m_cannot_have_is_refused(method: str) -> None:
    with pytest.raises(BrainsurgeonError, match=r"2:4 fixes the sparsity.*24 of 96 weights of '0.weight'"):
        prune(model(), data(), 0.5, method, pattern="2:4", budget={"0.weight": 0.25})


@every_method
def test_nothing_but_the_copys_linear_weights_is_changed(method: str) -> None:
    dense = model().train()
    before = state_of(dense)
    result = prune(dense, data(), 0.5, method, progress=False)
    assert same(state_of(dense), before)
    assert result.model is not dense
    for name, value in result.model.state_dict().items():
        if name not in result.masks:
            assert torch.equal(value, before[name])
    changed = prune(dense, data(), 0.5, method, in_place=True, progress=False)
    assert changed.model is dense
    assert same(state_of(dense), state_of(result.model))


@every_method
@pytest.mark.parametrize("in_place", [False, True])
def test_every_module_has_its_own_mode_back(method: str, in_place: bool) -> None:
    """Dropout is off while the loss is measured, before and after."""
    case = CASES["batch_norm_dropout"]
    dense = case.model().train()
    dense[1].eval()
    modes = [module.training for module in dense.modules()]
    statistics = dense[1].running_mean.clone()
    result = prune(dense, case.data(), 0.5, method, in_place=in_place, progress=False)
    assert [module.training for module in result.model.modules()] == modes
    assert torch.equal(result.model[1].running_mean, statistics)
    again = prune(case.model().train(), case.data(), 0.5, method, progress=False)
    assert (result.loss_before, result.loss_after) == (again.loss_before, again.loss_after)


def test_modes_forward_methods_and_gradients_are_as_before_after_an_error() -> None:
    class Failing:
        """Gives up at the last layer, while the blocks are passed over."""

        calls = 0

        def __call__(self, problem: Any) -> Any:
            self.calls += 1
            if self.calls == 8:
                raise BrainsurgeonError("no more")
            return method_module.Admm()(problem)

    net = BY_NAME["residual"]
    dense = net.model().train()
    own = [module.forward for module in dense.modules()]
    dense.head.bias.requires_grad_(False)
    wanted = [parameter.requires_grad for parameter in dense.parameters()]
    with pytest.raises(BrainsurgeonError, match="no more") as caught:  # held, with all that its frames hold
        prune(dense, net.data(), 0.5, Layerwise(Failing()), in_place=True, progress=False)
    assert all(module.training for module in dense.modules())
    assert [module.forward for module in dense.modules()] == own
    assert [parameter.requires_grad for parameter in dense.parameters()] == wanted
    assert torch.is_grad_enabled()
    del caught


@pytest.mark.parametrize("budget", ["global", "uniform"])
def test_embeddings_and_packed_attention_are_pruned_by_magnitude_and_told(budget: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.inner, self.idle = nn.Embedding(7, 6), PackedAttention(), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.embedding(x))

    dense = seeded(Net, 0)
    tokens = seeded(lambda: (torch.randint(7, (20, 4)), torch.randint(3, (20,))), 1)
    result = prune(dense, tokens, 0.5, "layerwise", budget=budget, progress=False)
    assert result.pruned == exact_count(0.5, result.size)
    by_magnitude = ["embedding.weight", "inner.attention.in_proj_weight", "inner.attention.out_proj.weight"]
    for name in [*by_magnitude, "idle.weight"]:
        mask, weight = result.masks[name], dense.get_parameter(name).detach()
        assert weight[mask].abs().max() <= weight[~mask].abs().min()
        assert torch.equal(result.model.get_parameter(name), weight.masked_fill(mask, 0.0))
    told = [note for note in result.notes if "by magnitude" in note]
    assert len(told) == 2
    assert all(name in told[0] for name in by_magnitude)
    assert "not called" in told[1]
    assert "idle.weight" in told[1]
    assert "head.weight" not in "".join(told)


def test_samples_are_needed() -> None:
    with pytest.raises(BrainsurgeonError, match="'wanda' needs calibration samples"):
        prune(model(), None, 0.5, "wanda")
    with pytest.raises(BrainsurgeonError, match="empty"):
        prune(model(), [], 0.5, "wanda")


def unread() -> Iterator[Any]:
    raise AssertionError("no sample is to be read")
    yield


def test_what_cannot_be_done_is_refused_before_any_work() -> None:
    with pytest.raises(BrainsurgeonError, match="needs linear layers or convolutions"):
        prune(nn.Sequential(nn.Embedding(5, 4)), unread(), 0.5, "layerwise")
    with pytest.raises(BrainsurgeonError, match=r"layer '0.weight': the pattern 2:4 needs .* 4 inputs, got .*6\)"):
        prune(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 4)), unread(), 0.5, "layerwise", pattern="2:4")
    with pytest.raises(BrainsurgeonError, match=r"layer '1.weight'.*4 rows and 4 inputs"):
        prune(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 6)), unread(), 0.5, "layerwise", pattern="4x4")


@pytest.mark.parametrize("pattern", ["2:4", "1x4", "4x1 row"])
def test_a_pattern_goes_along_the_inputs_where_they_come_first(pattern: str) -> None:
    """GPT-2 stores inputs × outputs; groups of a convolution have rows of their own."""
    net = BY_NAME["gpt2"]
    settings = {"include": "*.c_fc.weight", "pattern": pattern, "budget": "uniform"}
    result = prune(net.model(), net.data(), 0.5, "wanda", net.loss, **settings)
    for name, mask in result.masks.items():
        assert mask.shape == (8, 32), name
        assert parse_pattern(pattern).feasible(mask.T, 128)


def test_a_pattern_is_checked_against_the_inputs() -> None:
    class Conv1D(nn.Linear):
        """Inputs first, under the name that Hugging Face gives it."""

        def __init__(self) -> None:
            super().__init__(4, 6, bias=False)  # the weight is 6 × 4: six inputs

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight

    with pytest.raises(BrainsurgeonError, match="2:4"):
        prune(nn.Sequential(Conv1D(), nn.Linear(4, 4)), unread(), 0.5, "wanda", pattern="2:4")
    grouped = nn.Sequential(nn.Conv1d(4, 12, 1, groups=4), nn.Flatten())  # three rows a group
    with pytest.raises(BrainsurgeonError, match="2x1"):
        prune(grouped, unread(), 0.5, "wanda", pattern="2x1")


def test_the_same_seed_gives_the_same_bits_and_another_other_samples() -> None:
    one, two, other = (
        Surgery(model(), data(200)).prune(0.5, "layerwise", seed=seed, max_samples=20) for seed in (3, 3, 4)
    )
    assert same(state_of(one.model), state_of(two.model))
    assert not same(state_of(one.model), state_of(other.model))
    assert one.settings["calibration_samples"] == 20


def test_one_layer_by_the_engines_selection_and_update_is_pruned_by_its_gram_matrix() -> None:
    """The mean moments of its inputs, damped: the same objects as on the Fisher, and dense algebra agrees."""
    dense, (x, y) = seeded(lambda: nn.Sequential(nn.Linear(8, 4)), 0), data()
    chosen = Layerwise(Selected(WoodFisher(), Joint()), costs="none")
    result = prune(dense, (x, y), 0.5, chosen, progress=False)
    w, moments = dense[0].weight.detach().double(), x.double().T @ x.double() / len(x)
    moments += 0.01 * (1 + 50 * 8 / len(x)) * moments.diagonal().mean() * torch.eye(8)
    scores = w.square() / (2 * torch.linalg.inv(moments).diagonal())
    pruned = torch.zeros(32, dtype=torch.bool)
    pruned[scores.reshape(-1).argsort()[:16]] = True
    assert torch.equal(result.masks["0.weight"], pruned.view(4, 8))
    for row in range(4):
        kept = (~pruned.view(4, 8)[row]).nonzero().squeeze(1)
        best = torch.linalg.solve(moments[kept][:, kept], (w[row] @ moments)[kept])
        assert torch.allclose(result.model[0].weight[row, kept].double(), best, rtol=1e-3, atol=1e-5)


def test_wanda_is_what_plain_passes_over_the_network_give() -> None:
    """Layer after layer, each by the inputs that the pruned layers before it give."""
    dense, (x, y) = model().eval(), data()
    result = prune(dense, (x, y), 0.5, "wanda", budget="uniform", progress=False)
    twin = copy.deepcopy(dense)
    with torch.no_grad():
        for k in (0, 2, 5):
            inputs = twin[:k](x)
            weight = twin[k].weight
            scores = weight.double().abs() * inputs.double().square().mean(0).sqrt()
            lost = scores.argsort(dim=1)[:, : weight.shape[1] // 2]
            weight.scatter_(1, lost, 0.0)
    assert same(state_of(result.model), state_of(twin))


class Branches(nn.Module):
    """Residuals in the network's own code: what a module of a branch gives goes on only beside what it was given."""

    def __init__(self, in_place: bool = False):
        super().__init__()
        self.in_place, self.first, self.last = in_place, nn.Linear(10, 16), nn.Linear(16, 5)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            if self.in_place:
                x += block(x)
            else:
                x = x + block(x)
        return self.last(x)


def test_a_chain_through_branches_is_seen_though_the_network_is_sure_of_its_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, inputs = seeded(Branches, 0), seeded(lambda: torch.randn(60, 10), 1)
    with torch.no_grad():
        network.last.weight *= 1000
        samples = inputs, network(inputs).argmax(1)
        assert float(nn.functional.cross_entropy(network(inputs[:1]), samples[1][:1])) < 1e-6
    settings: dict[str, Any] = {"budget": "uniform", "progress": False}
    parted = prune(network, samples, 0.5, "wanda", **settings)
    monkeypatch.setattr(method_module, "find_chain", lambda *_: Chain())
    whole = prune(network, samples, 0.5, "wanda", **settings)
    assert parted.loss_after == pytest.approx(whole.loss_after)
    assert same(state_of(parted.model), state_of(whole.model))


@pytest.mark.parametrize("method", ["wanda", "sparsegpt", "layerwise"])
def test_what_is_written_in_place_is_another_input(method: str) -> None:
    plain, written = seeded(Branches, 0), seeded(lambda: Branches(in_place=True), 0)
    inputs = seeded(lambda: torch.randn(60, 10), 1)
    samples = inputs, torch.arange(60) % 5
    one, other = (prune(each, samples, 0.5, method, budget="uniform", progress=False) for each in (plain, written))
    assert same(state_of(one.model), state_of(other.model))


class Experts(nn.Module):
    """Each sample goes to one expert; the last is asked only for samples whose first number is large."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden, chosen = self.first(x).relu(), (x[:, 0] > 0).long() + (x[:, 0] > 5).long()
        given = torch.zeros_like(hidden)
        for k, expert in enumerate(self.experts):
            if (chosen == k).any():
                given[chosen == k] = expert(hidden[chosen == k])
        return self.last(given.relu())


@pytest.mark.parametrize("seen", [True, False])
def test_an_expert_that_the_first_samples_do_not_ask_is_pruned_in_the_pattern_all_the_same(seen: bool) -> None:
    inputs = seeded(lambda: torch.randn(200, 8), 1)
    inputs[-20:, 0] = 9.0 if seen else 1.0
    loader = [(x, torch.arange(len(x)) % 3) for x in inputs.split(20)]
    result = prune(seeded(Experts, 0), loader, 0.5, "layerwise", pattern="2:4", progress=False)
    assert any("not called" in note for note in result.notes) != seen
    for mask in result.masks.values():
        assert (mask.reshape(-1, 4).sum(1) == 2).all()


class Twice(nn.Module):
    """One layer is called twice, the second time with another input than its neighbour's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.a, self.b, self.last = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        once, other = self.a(hidden).tanh(), self.b(hidden)
        return self.last(self.a(5 * once) + other)


def test_a_layer_that_is_called_twice_does_not_stand_for_its_neighbour() -> None:
    network, inputs = seeded(Twice, 0), seeded(lambda: torch.randn(100, 8), 1) * torch.arange(1, 9)
    samples = inputs, torch.arange(100) % 8
    settings: dict[str, Any] = {"budget": "uniform", "progress": False, "include": ["a", "b"]}
    found = prune(network, samples, 0.5, "wanda", **settings).masks["b.weight"]
    alone = prune(network, samples, 0.5, "wanda", **{**settings, "include": "b"}).masks["b.weight"]
    assert torch.equal(found, alone)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_samples_of_curves_are_the_same_for_any_number_of_ranks(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank reads batches of its own size, and gets some."""
    monkeypatch.setattr(method_module, "own_share", lambda batches: batches)

    def used(count: int) -> list[Any]:
        monkeypatch.setattr(method_module, "world_size", lambda: count)
        size = min(method_module.IMAGES, -(-101 // count))
        return method_module._for_curves([(part, part) for part in torch.arange(101.0).split(size)])

    alone, shared = used(1), used(ranks)
    assert len(shared) >= ranks
    assert torch.equal(*(torch.cat([x for x, _ in found]) for found in (alone, shared)))


def embeddings(net: Network) -> Any:
    return nn.Embedding if any(isinstance(module, nn.Embedding) for module in net.model().modules()) else None


TRAINABLE = [n for n in NETWORKS if n.name not in ("writing", "in-place functions")]


@pytest.mark.parametrize("net", TRAINABLE, ids=lambda net: net.name)
def test_in_parts_is_what_passes_of_the_whole_network_give(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of network, with a chain or without: hidden states that wait are those of the changed network."""
    settings: dict[str, Any] = {"exclude": embeddings(net), "budget": "uniform", "progress": False}
    parted = prune(net.model(), net.data(), 0.5, "sparsegpt", net.loss, **settings)
    assert parted.settings["parts"] == (len(net.chain) if net.parts else 0)
    assert parted.pruned == exact_count(0.5, parted.size)
    assert any("no chain" in note for note in parted.notes) == (not net.parts)
    monkeypatch.setattr(method_module, "find_chain", lambda *_: Chain())
    whole = prune(net.model(), net.data(), 0.5, "sparsegpt", net.loss, **settings)
    assert whole.settings["parts"] == 0
    for name, mask in parted.masks.items():
        assert torch.equal(mask, whole.masks[name]), name
        assert torch.allclose(
            parted.model.get_parameter(name), whole.model.get_parameter(name), rtol=1e-3, atol=1e-5
        ), name
    assert parted.loss_before == pytest.approx(whole.loss_before, abs=1e-5)
    assert parted.loss_after == pytest.approx(whole.loss_after, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "first"), [("residual", True), ("gpt2", False), ("functions", True), ("sequential", False)]
)
def test_a_run_that_is_killed_at_any_part_goes_on_to_the_same_bits(name: str, first: bool) -> None:
    net = BY_NAME[name]

    def run(store: Parts) -> PruningResult:
        surgery = Surgery(net.model(), net.data(), net.loss, exclude=embeddings(net), progress=False)
        return surgery.prune(0.6, "sparsegpt", store=store)

    whole = Parts()
    expected = run(whole)
    assert whole.calls == list(range(len(whole.calls)))
    for kill in range(1, len(whole.calls) + 1):
        store = Parts(kill, first)
        with pytest.raises(KilledError):
            run(store)
        resumed = store.again()
        found = run(resumed)
        assert whole.calls[kill - first :] == resumed.calls  # nothing that was stored is done again
        assert same(state_of(found.model), state_of(expected.model))
        assert same(found.masks, expected.masks)
        assert found.settings["errors"] == expected.settings["errors"]
        assert found.loss_after == expected.loss_after


def test_kept_weights_that_are_zero_stay_kept_after_a_kill() -> None:
    dense = model()
    with torch.no_grad():
        dense[2].weight[:, :8] = 0.0  # more zeros than are to go

    def run(store: Parts) -> PruningResult:
        return Surgery(dense, data(), progress=False).prune(0.2, "wanda", budget="uniform", store=store)

    expected, store = run(Parts()), Parts(kill=4)
    with pytest.raises(KilledError):
        run(store)
    assert same(run(store.again()).masks, expected.masks)


@pytest.mark.parametrize("budget", ["global", "uniform"])
def test_costs_decide_where_the_sparsity_goes(budget: str) -> None:
    """A layer whose outputs the loss hardly feels loses more, whatever the scale of its inputs."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.felt, self.faint = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return (self.felt(x) + 0.001 * self.faint(x))[:, :4]

    def lost(costs: str) -> float:
        result = prune(seeded(Two, 0), data(), 0.5, "layerwise", budget=budget, costs=costs, progress=False)
        return int(result.masks["faint.weight"].sum()) / 64

    if budget == "uniform":
        assert lost("loss") == lost("none") == 0.5
    else:
        assert lost("loss") > 0.8
        assert lost("none") < 0.7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_samples": 0}, "max_samples must be"),
        ({"damping": 0}, "damping must be positive"),
        ({"costs": "all"}, "costs must be"),
        ({"pattern": "4:2"}, "0 < n < m"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        Layerwise(**settings)


def test_a_block_that_cannot_be_measured_is_told_with_the_errors_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("states lie elsewhere\nand more")

    net = next(net for net in NETWORKS if net.chain and net.parts)

    def pruned() -> PruningResult:
        return prune(net.model(), net.data(), 0.5, "layerwise", net.loss, progress=False)

    before = pruned()
    monkeypatch.setattr("brainsurgeon.pruning.surgery.along_chain", broken)
    result = pruned()
    (told,) = [note for note in result.notes if "could not be measured" in note]
    assert told.endswith("foretold: RuntimeError: states lie elsewhere")
    assert not any("could not be measured" in note for note in before.notes)
    assert all(torch.equal(mask, before.masks[name]) for name, mask in result.masks.items())


def test_batches_of_a_loader_are_read_to_the_limit() -> None:
    net = BY_NAME["residual"]
    result = prune(net.model(), net.batches(), 0.5, "wanda", max_samples=BATCH + 1, progress=False)
    assert result.settings["calibration_samples"] == BATCH + 1 < SAMPLES


class Tagger(nn.Module):
    """Classes of the places of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(30, 16), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self.embed(x)).relu()).transpose(1, 2)


def test_sequences_that_are_all_padding_have_no_part_in_the_loss_that_is_reported() -> None:
    x, y = seeded(lambda: (torch.randint(30, (60, 9)), torch.randint(5, (60, 9))), 0)
    y[:, 6:], y[:6] = -100, -100
    result = prune(seeded(Tagger, 1), (x, y), 0.5, "layerwise", progress=False)
    assert 1 < result.loss_before < 3
    assert 1 < result.loss_after < 4
