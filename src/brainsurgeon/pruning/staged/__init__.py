"""Pruning in stages."""
