"""Names of layers where there is little room."""

from __future__ import annotations

from brainsurgeon.app.report.charts import NAME


def distinct(names: list[str]) -> list[str]:
    """Leave out what all names begin and end with (`model.layers.` … `.weight`), where they have no room else."""
    parts = [name.split(".") for name in names]
    if len(names) == 1 or max(map(len, names)) <= NAME:
        return names
    while min(map(len, parts)) > 1 and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    while min(map(len, parts)) > 1 and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    return [".".join(part) for part in parts]
