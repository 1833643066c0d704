"""Structured pruning: whole channels, neurons, heads and hidden units go, and a smaller dense network comes out."""
