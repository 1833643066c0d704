"""Ways of changing the weights that stay, one file each."""

from .independent import Independent
from .joint import Joint
from .none import Keep
from .scaled import Scaled

__all__ = ["Independent", "Joint", "Keep", "Scaled"]
