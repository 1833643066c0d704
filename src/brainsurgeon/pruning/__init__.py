"""Pruning: prepare, examine, select, update, finish."""
