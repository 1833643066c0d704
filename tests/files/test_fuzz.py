"""Thousands of truncated, altered and hostile files: a clear error, or (where nothing was changed) the same content."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cases import CASES
from torch import nn

from brainsurgeon import BrainsurgeonError, PruningResult, load, load_masks, prune, save_masks
from brainsurgeon.export import load_csr, save_csr, to_csr
from brainsurgeon.files import Saved
from brainsurgeon.files.sealed import read_sealed, write_sealed

every_length = pytest.mark.parametrize("rounds", [1000, pytest.param(20_000, marks=pytest.mark.slow)])


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def splice(content: bytes, draw: random.Random) -> bytes:
    start, end, to = sorted(draw.randrange(len(content)) for _ in range(3))
    return content[:to] + content[start:end] + content[to:]


def noise(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    end = min(len(content), start + draw.randrange(1, 64))
    return content[:start] + draw.randbytes(end - start) + content[end:]


def append(content: bytes, draw: random.Random) -> bytes:
    return content + draw.randbytes(draw.randrange(1, 200))


def garbage(content: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.randrange(0, 400))


def header_length(content: bytes, draw: random.Random) -> bytes:
    return struct.pack("<Q", draw.choice([0, 1, 7, 2**31, 2**63, 2**64 - 1, len(content)])) + content[8:]


def header_number(content: bytes, draw: random.Random) -> bytes:
    """Change a shape, an offset or a type in the header, which stays valid JSON."""
    (length,) = struct.unpack("<Q", content[:8])
    try:
        header = json.loads(content[8 : 8 + length])
    except (ValueError, UnicodeDecodeError):
        return flip(content, draw)
    entry = header[draw.choice([name for name in header if name != "__metadata__"])]
    odd = draw.choice([-1, 0, 3, 2**31, 2**63, 2**64, 1.5, "7", None, [], True])
    where = draw.choice(["shape", "data_offsets", "dtype"])
    if where == "dtype":
        entry["dtype"] = draw.choice(["F8_E5M2", "F64", "BOOL", "F4", "", "U8", "C64"])
    elif entry[where]:
        entry[where][draw.randrange(len(entry[where]))] = odd
    else:
        entry[where] = odd
    new = json.dumps(header).encode()
    return struct.pack("<Q", len(new)) + new + content[8 + length :]


def pickled(content: bytes, draw: random.Random) -> bytes:
    """A pickle that would run a command: it must never be unpickled."""
    return b"cos\nsystem\n(S'touch /tmp/brainsurgeon-was-hacked'\ntR." + content[: draw.randrange(20)]


HARM: list[Callable[[bytes, random.Random], bytes]] = [
    cut,
    flip,
    flip,
    flip,
    splice,
    noise,
    append,
    garbage,
    header_length,
    header_number,
    header_number,
    pickled,
]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, PruningResult]]:
    case = CASES["conv2d"]
    result = prune(case.model(), case.data(), 0.6, "mp", progress=False)
    folder = tmp_path_factory.mktemp("saved")
    return {
        "dense": (result.save(folder / "dense"), result),
        "compressed": (result.save(folder / "compressed", compressed=True), result),
    }


def harmed(folder: Path, draw: random.Random) -> Iterator[None]:
    """Harm one file of a folder, and mend it afterwards."""
    path = draw.choice(sorted(folder.iterdir()))
    content = path.read_bytes()
    path.write_bytes(draw.choice(HARM)(content, draw))
    yield
    path.write_bytes(content)


@every_length
@pytest.mark.parametrize("form", ["dense", "compressed"])
def test_harmed_folders_are_refused_in_words(
    form: str, rounds: int, originals: dict[str, tuple[Path, PruningResult]]
) -> None:
    folder, result = originals[form]
    draw, refused = random.Random(f"{form}{rounds}"), 0
    for _ in range(rounds):
        harm = harmed(folder, draw)
        next(harm)
        model = CASES["conv2d"].model()
        try:
            saved = load(folder, model)
        except BrainsurgeonError as error:
            refused += len(str(error)) > 30
        else:
            assert_same(saved, model, result)
        next(harm, None)
    assert refused > 0.95 * rounds
    assert_same(load(folder, CASES["conv2d"].model()), result.model, result)
    assert not Path("/tmp/brainsurgeon-was-hacked").exists()


def assert_same(saved: Saved, model: nn.Module, result: PruningResult) -> None:
    """What harm did not change (white space in a header, say) is read as what was saved."""
    for name, value in result.model.state_dict().items():
        assert torch.equal(saved.state[name], value)
        assert torch.equal(model.state_dict()[name], value)
    assert all(torch.equal(saved.masks[name], mask) for name, mask in result.masks.items())


@pytest.mark.parametrize("form", ["dense", "compressed"])
def test_every_prefix_of_the_model_is_refused(form: str, originals: dict[str, tuple[Path, PruningResult]]) -> None:
    folder, _ = originals[form]
    path = next(path for path in folder.iterdir() if path.name.startswith("model"))
    content = path.read_bytes()
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(BrainsurgeonError):
            load(folder, CASES["conv2d"].model())
    path.write_bytes(content)


SHAPES = [[], [0], [3], [3, 2, 3, 3], [54], [2**31, 2**31], [-1], [54.0], ["54"], None, {}, "x", True, [[3]], [2**70]]


def lie(stored: dict[str, torch.Tensor], info: dict[str, object], draw: random.Random) -> None:
    """Change what a file holds or says, as someone would who can seal it again."""
    name = draw.choice(sorted(stored))
    tensor, way = stored[name], draw.randrange(9)
    if way == 0:
        del stored[name]
    elif way == 1:
        stored[name] = tensor.reshape(-1)[: draw.randrange(tensor.numel() + 1)]
    elif way == 2:
        stored[name] = tensor.to(draw.choice([torch.float64, torch.int32, torch.uint8, torch.bool]))
    elif way == 3:
        stored[draw.choice([name + "::kept", "::values", "w::kept", "w", ""])] = tensor
    elif way == 4:
        stored[name] = torch.frombuffer(bytearray(draw.randbytes(draw.randrange(1, 40))), dtype=torch.uint8)
    elif way == 5:
        info["tied"] = draw.choice([{"a": "b"}, {name: name}, [], "x", {"a": 1}, {"0.weight": "0.weight"}, None])
    elif way == 6 and isinstance(info.get("shapes"), dict):
        info["shapes"][draw.choice([*info["shapes"], "other"])] = copy.deepcopy(draw.choice(SHAPES))  # type: ignore[index,misc]
    elif way == 7:
        info["shapes"] = copy.deepcopy(draw.choice(SHAPES))
    else:
        info[draw.choice(["masks", "record", "kind", "version"])] = draw.choice([None, 0, "x", [], {}])


@every_length
@pytest.mark.parametrize("kind", ["compressed", "dense", "masks", "csr"])
def test_well_sealed_lies_are_refused_in_words(kind: str, rounds: int, tmp_path: Path) -> None:
    """Thousands of each kind: never anything but our own error, or a content that fits together."""
    case = CASES["conv2d"]
    result = prune(case.model(), case.data(), 0.6, "mp", progress=False)
    path, open_it = liars_file(kind, result, tmp_path)
    original, info, _ = read_sealed(path, kind)
    draw, refused = random.Random(f"{kind}{rounds}"), 0
    for _ in range(rounds):
        stored, told = dict(original), json.loads(json.dumps(info))
        for _ in range(draw.choice([1, 1, 2, 3])):
            if stored:
                lie(stored, told, draw)
        write_sealed(stored, path, told.pop("kind", kind), told)
        try:
            open_it()
        except BrainsurgeonError as error:
            refused += len(str(error)) > 30
    assert refused > 0.5 * rounds


def liars_file(kind: str, result: PruningResult, folder: Path) -> tuple[Path, Callable[[], object]]:
    if kind == "masks":
        path = save_masks(result.masks, folder / "masks")
        return path, lambda: load_masks(path, CASES["conv2d"].model())
    if kind == "csr":
        path = save_csr(to_csr(result.model, result.masks), folder / "csr")
        return path, lambda: load_csr(path)
    result.save(folder / kind, compressed=kind == "compressed")
    name = "model.compressed.safetensors" if kind == "compressed" else "model.safetensors"
    return folder / kind / name, lambda: load(folder / kind, CASES["conv2d"].model())
