"""Whether the dense network is listened to: while its loss is well below the student's."""

import pytest
import torch

from brainsurgeon.network.trust import AHEAD_DOUBTED, ASKED, Trust


def test_the_dense_network_teaches_while_its_loss_is_well_below_the_students() -> None:
    trust = Trust()
    assert float(trust.weigh(torch.tensor(1.0), torch.tensor(0.5))) == 1
    assert float(Trust().weigh(torch.tensor(1.0), torch.tensor(0.9))) == 0  # hardly better
    for _ in range(300):
        followed = trust.weigh(torch.tensor(0.2), torch.tensor(0.5))
        trust.count()
    assert float(followed) == 0
    assert not trust.listens


def test_a_dense_network_that_was_left_alone_is_heard_again_when_the_student_falls_back() -> None:
    trust = Trust()
    for _ in range(ASKED):
        trust.weigh(torch.tensor(0.2), torch.tensor(0.5))
        trust.count()
    assert not trust.listens
    for _ in range(5 * ASKED):
        trust.weigh(torch.tensor(3.0), None)  # what the dense network lost is remembered
        trust.count()
    assert trust.listens


def test_trust_goes_on_from_its_state() -> None:
    one, other = Trust(), Trust()
    losses = torch.rand(2 * ASKED, 2, generator=torch.Generator().manual_seed(0))
    for student, dense in losses[: ASKED + 7]:
        one.weigh(student, dense)
        one.count()
    other.restore(one.state(), losses)
    for student, dense in losses[ASKED + 7 :]:
        assert torch.equal(one.weigh(student, dense), other.weigh(student, dense))
        one.count()
        other.count()
    assert torch.equal(one.state(), other.state())


def test_running_means_stay_where_they_are_in_memory() -> None:
    """A recorded step writes to the same place every time."""
    trust = Trust()
    trust.weigh(torch.tensor(1.0), torch.tensor(0.5))
    assert trust.losses is not None
    place = trust.losses.data_ptr()
    for dense in (torch.tensor(0.25), None):
        trust.weigh(torch.tensor(2.0), dense)
        assert trust.losses.data_ptr() == place
    assert trust.losses.tolist() == pytest.approx([1 + 0.02 + 0.98 * 0.02, 0.495])


def test_means_of_losses_in_half_precision_do_not_stick_and_are_resumed() -> None:
    half = torch.bfloat16
    trust = Trust()
    trust.weigh(torch.tensor(1.0, dtype=half), torch.tensor(0.6, dtype=half))
    for _ in range(400):
        followed = trust.weigh(torch.tensor(0.84, dtype=half), torch.tensor(0.6, dtype=half))
    assert float(followed) == 0  # 0.6 is not below 0.7 of 0.84
    other = Trust()
    other.restore(trust.state(), torch.zeros(1, dtype=half))
    assert other.weigh(torch.tensor(0.84, dtype=half), torch.tensor(0.6, dtype=half)).dtype == half


def test_a_device_is_asked_only_now_and_then() -> None:
    trust = Trust()
    heard = []
    for _ in range(2 * ASKED):
        trust.weigh(torch.tensor(0.2), torch.tensor(0.5))  # the student is ahead from the first step on
        trust.count()
        heard.append(trust.listens)
    assert heard == [True] * (ASKED - 1) + [False] * (ASKED + 1)


def test_how_far_ahead_the_dense_network_must_be_can_be_said() -> None:
    student, dense = torch.tensor(1.0), torch.tensor(0.8)
    assert float(Trust().weigh(student, dense)) == 0
    assert float(Trust(AHEAD_DOUBTED).weigh(student, dense)) == 1
    assert float(Trust(AHEAD_DOUBTED).weigh(student, torch.tensor(0.95))) == 0
