"""Exact solutions and certificates: how far a pruning can be from optimal."""

from .certificate import Certificate, certify
from .certified import Certified
from .instance import Instance
from .solve import FORMULATIONS, solve

__all__ = ["FORMULATIONS", "Certificate", "Certified", "Instance", "certify", "solve"]
