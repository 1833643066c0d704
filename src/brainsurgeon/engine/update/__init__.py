"""Ways of changing the weights that stay, one file each."""

from brainsurgeon.engine.update.independent import Independent
from brainsurgeon.engine.update.joint import Joint
from brainsurgeon.engine.update.none import Keep
from brainsurgeon.engine.update.scaled import Scaled

__all__ = ["Independent", "Joint", "Keep", "Scaled"]
