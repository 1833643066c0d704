"""What a method finds: the quadratic model is held on to or not, and a task knows its count."""

import gc
import pickle

import torch
from torch import nn
from toys import make_toy, one_group

from brainsurgeon.engine.budget import Share
from brainsurgeon.events import silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.pruning.outcome import Examined, Task


def test_a_model_that_belongs_to_another_is_remembered_while_it_lives() -> None:
    budget = one_group(10, 3)
    for held in (False, True):
        quadratic = make_toy(0).quadratic()
        examined = Examined.of(budget, quadratic, held)
        assert examined is not None
        assert examined.quadratic() is quadratic
        del quadratic
        gc.collect()
        assert (examined.quadratic() is not None) == held
    assert Examined.of(budget, None, True) is None


def test_a_copy_in_a_file_has_the_counts_and_no_model() -> None:
    examined = Examined.of(one_group(10, 3), make_toy(0).quadratic(), True)
    again = pickle.loads(pickle.dumps(examined))
    assert again.quadratic() is None
    assert again.budget.counts == (3,)
    assert torch.equal(again.budget.groups[0], torch.arange(10))


def test_the_count_of_a_task_is_that_of_its_shares() -> None:
    shares = [Share((), 20), Share((), 3)]
    assert Task(nn.Linear(2, 2), shares, 0, silent, Clock()).total == 23
