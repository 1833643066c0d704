"""Exact solutions and certificates: how far a pruning can be from optimal."""

from brainsurgeon.exact.certificate import Certificate, certify
from brainsurgeon.exact.certified import Certified
from brainsurgeon.exact.instance import Instance
from brainsurgeon.exact.solve import FORMULATIONS, solve

__all__ = ["FORMULATIONS", "Certificate", "Certified", "Instance", "certify", "solve"]
