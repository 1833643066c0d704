"""How many views of a sample the dense network is asked about."""

from typing import Any

import pytest
import torch
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.views import SEVERAL, count_views
from brainsurgeon.pruning.prune import prune
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.augment import crop_and_flip
from brainsurgeon.samples.batches import Batch


def images(count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 1, 4, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def classes() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def count(few: bool = False, model: nn.Module | None = None, loss: Any = "cross_entropy", **settings: Any) -> int:
    data = images()
    surgery = Surgery(model or classes(), data, loss, progress=False)
    return count_views(Gradual(**({"augment": crop_and_flip} | settings)), surgery, data, few)


def relabelled(batch: Batch, _: torch.Generator) -> Batch:
    return batch[0], batch[1].flip(0)


def test_several_views_need_many_samples_and_an_augment() -> None:
    assert count() == SEVERAL > 1
    assert count(few=True) == 1
    assert count(augment=None) == 1
    assert count(distil=0.0) == 1
    assert count(views=1) == 1
    assert count(few=True, views=3) == 3


def per_pixel() -> nn.Module:
    """Scores of three classes for every pixel."""
    torch.manual_seed(0)
    return nn.Conv2d(1, 3, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"augment": relabelled},
        {"loss": lambda output, target: (output - target[:, None]).square().mean()},
        {"model": per_pixel(), "loss": nn.CrossEntropyLoss()},
    ],
)
def test_views_that_may_not_be_of_the_same_sample_are_not_asked_for(settings: dict[str, Any]) -> None:
    """A target that changes, outputs that are no scores of classes, scores with places that a flip moves."""
    assert count(**settings) == 1
    with pytest.raises(BrainsurgeonError, match="take views=1"):
        count(views=2, **settings)


def test_views_without_an_augment_are_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="2 views of a sample need `augment`"):
        Gradual(views=2)
    for views in (0, 1.5):
        with pytest.raises(BrainsurgeonError, match="whole number"):
            Gradual(views=views)  # type: ignore[arg-type]


def test_a_run_says_how_many_views_it_asked_for_and_they_change_it() -> None:
    def run(**settings: Any) -> Any:
        method = Gradual(max_gradients=640, learning_rate=0.01, distil=1.0, augment=crop_and_flip, **settings)
        return prune(classes(), images(300), 0.5, method, seed=0, progress=False)

    one, two, again = run(views=1), run(views=2), run(views=2)
    assert (one.settings["views"], two.settings["views"]) == (1, 2)
    assert one.settings["sample_gradients"] == two.settings["sample_gradients"] == 640
    weight = "1.weight"
    assert torch.equal(two.model.get_parameter(weight), again.model.get_parameter(weight))
    assert not torch.equal(one.model.get_parameter(weight), two.model.get_parameter(weight))
