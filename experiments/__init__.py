"""Experiments and benchmarks: what the pages' figures come from. Run one as `python -m experiments.NAME --help`."""
