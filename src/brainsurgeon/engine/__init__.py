"""The algebra: tensors and callables only."""
