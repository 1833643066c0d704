"""Settings of a fine-tune: the learning rate over time, and what is refused."""

from __future__ import annotations

import pytest

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.training.settings import FinetuneSettings


def test_the_rate_rises_and_falls_to_zero() -> None:
    settings = FinetuneSettings(learning_rate=0.1, warmup=0.1)
    rates = [settings.rate_at(k / 100) for k in range(101)]
    assert rates[0] == 0
    assert rates[100] == pytest.approx(0)
    assert max(rates) == rates[10]


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"learning_rate": 0},
        {"optimizer": "magic"},
        {"held_out_share": 1.0},
        {"held_out_share": -0.1},
        {"patience": 0},
    ],
)
def test_bad_settings_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BrainsurgeonError):
        FinetuneSettings(**options)  # type: ignore[arg-type]


def test_statistics_are_one_of_two() -> None:
    with pytest.raises(BrainsurgeonError, match="statistics must be one of batch, kept"):
        FinetuneSettings(statistics="none")


@pytest.mark.parametrize("name", ["epochs", "batch_size", "seed", "patience"])
@pytest.mark.parametrize("value", [True, 2.5, "3"])
def test_counts_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(BrainsurgeonError, match=f"{name} must be a whole number, got {value!r}"):
        FinetuneSettings(**{name: value})


def test_without_a_warmup_the_first_rate_is_the_whole_one() -> None:
    settings = FinetuneSettings(learning_rate=0.1, warmup=0.0)
    assert settings.rate_at(0.0) == 0.1
    assert settings.rate_at(0.5) == pytest.approx(0.05)
    assert settings.rate_at(1.7) == pytest.approx(0)  # an epoch that is longer than was known


def test_a_name_that_is_no_setting_is_refused() -> None:
    assert FinetuneSettings(seed=3).having({"epochs": 2}) == FinetuneSettings(epochs=2, seed=3)
    with pytest.raises(BrainsurgeonError, match="no setting 'rate'"):
        FinetuneSettings().having({"rate": 1})
