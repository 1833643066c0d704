"""The paper's figures are whole, and in line with what the paper says of them."""

import pytest

from brainsurgeon.paper.reproduce.published import DENSE, PUBLISHED, _column

NETWORKS = list(PUBLISHED)


def test_a_column_has_a_figure_for_every_sparsity() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _column((0.5, 0.9), 93.0)
    assert _column((0.5, 0.9), 93.0, 90.0) == {0.5: 93.0, 0.9: 90.0}


@pytest.mark.parametrize("network", NETWORKS)
def test_all_methods_of_a_network_have_the_same_sparsities_and_figures_in_per_cent(network: str) -> None:
    columns = PUBLISHED[network]
    assert len({tuple(column) for column in columns.values()}) == 1
    for column in columns.values():
        assert list(column) == sorted(column)
        assert all(0 <= value <= DENSE[network] + 0.2 for value in column.values())


@pytest.mark.parametrize("network", NETWORKS)
def test_the_sparsest_network_is_the_worst_and_cbs_beats_magnitude_where_it_matters(network: str) -> None:
    """The claims of the paper's tables, which a figure typed in the wrong place would break."""
    for column in PUBLISHED[network].values():
        assert min(column.values()) == column[max(column)]
    high = max(PUBLISHED[network]["mp"])
    assert PUBLISHED[network]["cbs"][high] > PUBLISHED[network]["mp"][high]
    assert PUBLISHED[network]["cbs-s"][high] > PUBLISHED[network]["mp"][high]
