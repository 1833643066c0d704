"""The sparsities of a survey of layers."""

SOME = (0.5, 0.8, 0.9)
