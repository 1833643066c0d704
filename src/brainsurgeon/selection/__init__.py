"""Ways of choosing which weights go, one file each."""

from .given import Given
from .joint_search import JointSearch
from .local_search import LocalSearch
from .magnitude import Magnitude
from .multi_start import MultiStart
from .polish import Polish
from .randomized import Randomized
from .recentred_search import RecentredSearch
from .relaxed import Relaxed
from .relinking import Relinking
from .tabu import Tabu
from .wide_search import WideSearch
from .woodfisher import WoodFisher

__all__ = [
    "Given",
    "JointSearch",
    "LocalSearch",
    "Magnitude",
    "MultiStart",
    "Polish",
    "Randomized",
    "RecentredSearch",
    "Relaxed",
    "Relinking",
    "Tabu",
    "WideSearch",
    "WoodFisher",
]
