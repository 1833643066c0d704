"""Exact solutions and certificates: how far a pruning can be from optimal."""

from .certified import Certified
from .instance import Instance
from .solve import FORMULATIONS, solve

__all__ = ["FORMULATIONS", "Certified", "Instance", "solve"]
