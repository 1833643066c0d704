"""What a shrinking gives back, in words and in numbers."""

from __future__ import annotations

import json

import structures as s
import torch
from shrinking import shrunk

from brainsurgeon.structured.result import kept_units


def test_time_is_measured_where_it_is_asked_for() -> None:
    result = shrunk("perceptron", macs=0.5, seconds=0.01)
    assert result.milliseconds is not None
    assert result.speed_up == result.milliseconds[0] / result.milliseconds[1]
    assert "times the speed" in result.summary()
    assert shrunk("perceptron", macs=0.5).speed_up is None


def test_the_summary_names_groups_and_what_is_left_alone() -> None:
    text = shrunk("recurrent", units=0.5).summary()
    assert "middle" in text
    assert "left alone: lstm.weight_ih_l0: aten.lstm.input cannot be followed" in text
    assert "left alone: enter.weight: aten.lstm.input cannot be followed" in text


def test_kept_units_are_the_numbers_of_those_that_stay() -> None:
    assert kept_units(torch.tensor([True, False, False, True, False])) == (1, 2, 4)
    assert kept_units(torch.ones(2, dtype=torch.bool)) == ()


def test_the_record_is_json_and_says_what_was_kept() -> None:
    result = shrunk("perceptron", units=0.5)
    record = json.loads(result.to_json())
    assert {group["name"]: group["kept"] for group in record["groups"]} == {n: [*k] for n, k in result.kept.items()}
    assert record["parameters"] == [sum(p.numel() for p in s.seeded(s.Perceptron).parameters()), result.parameters[1]]
    assert record["milliseconds"] is None
    assert record["settings"]["units"] == 0.5
