"""How each network is trained."""

import pytest

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.models import BUILDERS
from brainsurgeon.paper.train_settings import DEFAULTS, TrainSettings, default_settings


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    settings = TrainSettings("mnist", epochs=10, learning_rate=0.1, warmup_epochs=1)
    assert settings.rate_at(0.5) == pytest.approx(0.05, rel=0.01)
    assert settings.rate_at(5) == pytest.approx(0.05)
    assert settings.rate_at(10) == pytest.approx(0)


def test_every_network_has_settings() -> None:
    assert set(DEFAULTS) == set(BUILDERS)


def test_an_unknown_network_is_answered_with_the_known_ones() -> None:
    assert default_settings("mlpnet").data == "mnist"
    with pytest.raises(BrainsurgeonError, match=r"Unknown network 'lenet'.*mlpnet, cifarnet"):
        default_settings("lenet")


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}])
def test_settings_that_train_nothing_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(BrainsurgeonError, match="Expected at least one epoch"):
        TrainSettings(**{"data": "mnist", "epochs": 1, **bad})  # type: ignore[arg-type]
