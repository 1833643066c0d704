"""What the build adds to the wheel: the recorded cells of the paper's tables, so that they can be shown anywhere."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "brainsurgeon/paper/recorded"


class Recorded(BuildHookInterface):
    """Puts the cells of every network and seed into the package; an editable install reads them where they lie."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files, and where they go."""
        if version == "editable":
            return
        results = Path(self.root, "experiments", "results")
        for path in sorted(results.rglob("*-seed*.jsonl")):
            build_data["force_include"][str(path)] = f"{PLACE}/{path.relative_to(results).as_posix()}"
