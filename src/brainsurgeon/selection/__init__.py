"""Ways of choosing which weights go, one file each."""

from .given import Given
from .local_search import LocalSearch
from .magnitude import Magnitude
from .polish import Polish
from .randomized import Randomized
from .recentred_search import RecentredSearch
from .relaxed import Relaxed
from .wide_search import WideSearch
from .woodfisher import WoodFisher

__all__ = [
    "Given",
    "LocalSearch",
    "Magnitude",
    "Polish",
    "Randomized",
    "RecentredSearch",
    "Relaxed",
    "WideSearch",
    "WoodFisher",
]
