"""A training that was killed goes on to the same bits, and no other training does."""

import dataclasses
from pathlib import Path

import pytest
import torch
from stripes import QUICK

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.paper.datasets import ImageData
from brainsurgeon.paper.train import train


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_training_that_is_killed_goes_on_to_the_same_bits(tmp_path: Path, digits: ImageData, epoch: int) -> None:
    settings = dataclasses.replace(QUICK, crop_padding=2, flip=True)
    expected, whole = train("mlpnet", digits, settings)

    class KilledError(Exception):
        pass

    def kill(event: Event) -> None:
        if event.done == epoch:
            raise KilledError

    with pytest.raises(KilledError):
        train("mlpnet", digits, settings, callback=kill, state=tmp_path / "state")
    events: list[Event] = []
    found, record = train("mlpnet", digits, settings, callback=events.append, state=tmp_path / "state")
    assert [event.done for event in events] == list(range(epoch + 1, 4))
    assert record.epochs == whole.epochs
    assert all(map(torch.equal, found.state_dict().values(), expected.state_dict().values()))


def test_a_state_of_another_training_is_refused(tmp_path: Path, digits: ImageData) -> None:
    settings, state = dataclasses.replace(QUICK, epochs=1), tmp_path / "state"
    train("mlpnet", digits, settings, state=state)
    with pytest.raises(BrainsurgeonError, match="another training \\(seed differ"):
        train("mlpnet", digits, dataclasses.replace(settings, seed=1), state=state)
    for name in ("train_inputs", "train_targets"):
        other = dataclasses.replace(digits, **{name: getattr(digits, name).flip(0)})
        with pytest.raises(BrainsurgeonError, match="images differ"):
            train("mlpnet", other, settings, state=state)
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(BrainsurgeonError, match="not an intact"):
        train("mlpnet", digits, settings, state=state)
