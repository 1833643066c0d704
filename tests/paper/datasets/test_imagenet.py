"""ImageNet from packed files and from class folders."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from brainsurgeon.files.checkpoint import load_checkpoint
from brainsurgeon.paper.datasets import DataError
from brainsurgeon.paper.datasets.imagenet import ResizeAndCrop, load_imagenet, read_class_folders, read_packed
from brainsurgeon.paper.models import build

SHARED = Path(__file__).parents[4] / "shared"


def solid(color: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.new("RGB", size, color)


def pack(path: Path, images: list[Image.Image], labels: list[int]) -> Path:
    files = []
    for image in images:
        image.save(buffer := io.BytesIO(), "JPEG")
        files.append(buffer.getvalue())
    offsets = np.cumsum([0, *map(len, files)])
    np.savez(path, jpeg=np.frombuffer(b"".join(files), np.uint8), offsets=offsets, labels=np.array(labels))
    return path


def test_packed_images_come_out_in_order(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.npz", [solid((250, 0, 0)), solid((0, 0, 250))], [7, 3])
    inputs, targets = read_packed(path, ResizeAndCrop(8, 8))
    assert inputs.shape == (2, 3, 8, 8)
    assert inputs.dtype == torch.uint8
    assert inputs[0, 0].float().mean() > 240 > 10 > inputs[1, 0].float().mean()
    assert targets.tolist() == [7, 3]


def test_class_folders_are_numbered_by_name(tmp_path: Path) -> None:
    for name in ("n02", "n01"):
        (tmp_path / name).mkdir()
        for number in range(2):
            solid((9, 9, 9), (20, 12)).save(tmp_path / name / f"{number}.JPEG")
    inputs, targets = read_class_folders(tmp_path, ResizeAndCrop(10, 8))
    assert inputs.shape == (4, 3, 8, 8)
    assert targets.tolist() == [0, 0, 1, 1]
    assert read_class_folders(tmp_path, ResizeAndCrop(10, 8), per_class=1)[1].tolist() == [0, 1]
    data = load_imagenet(tmp_path, pack(tmp_path / "t.npz", [solid((0, 0, 0))], [0]), ResizeAndCrop(10, 8))
    torch.testing.assert_close(data.test()[0], torch.full((1, 3, 8, 8), -1.0))


def test_the_middle_is_cropped_after_resizing_the_shorter_side() -> None:
    image = Image.new("RGB", (40, 20))
    image.paste((255, 255, 255), (15, 0, 25, 20))
    cropped = ResizeAndCrop(10, 4)(image)
    assert cropped.shape == (4, 4, 3)
    assert cropped.min() > 200
    assert ResizeAndCrop(10, 20)(solid((1, 2, 3), (20, 20))).shape == (20, 20, 3)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*absent.npz.*image-net"):
        read_packed(tmp_path / "absent.npz")
    with pytest.raises(DataError, match="folder of JPEG or PNG"):
        read_class_folders(tmp_path)
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4 not really")
    with pytest.raises(DataError, match=r"bad\.npz is not an intact"):
        read_packed(tmp_path / "bad.npz")
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "cat.jpg").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"cat\.jpg cannot be decoded"):
        read_class_folders(tmp_path)
    np.savez(tmp_path / "odd.npz", jpeg=np.zeros(3, np.uint8), offsets=np.arange(2), labels=np.arange(4))
    with pytest.raises(DataError, match="4 labels but 2 offsets"):
        read_packed(tmp_path / "odd.npz")


def test_without_pillow_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "a.npz", [solid((0, 0, 0))], [0])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'brainsurgeon\[data\]'"):
        read_packed(path)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the shared files are not in {SHARED}")
def test_the_published_mobilenet_is_right_on_66_9_percent() -> None:
    model = load_checkpoint(
        build("mobilenet-0.75"), SHARED / "checkpoints" / "mobilenet_v1_0.75_224_imagenet.safetensors"
    ).eval()
    inputs, targets = read_packed(SHARED / "imagenet" / "validation-1000.npz")
    with torch.no_grad():
        right = sum(
            (model(images / 127.5 - 1).argmax(-1) == labels).sum().item()
            for images, labels in zip(inputs.split(50), targets.split(50), strict=True)
        )
    assert right == 669
