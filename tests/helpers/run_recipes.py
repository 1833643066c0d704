"""A quick recipe of a run."""

from commands import TARGET

RECIPE = {"target": TARGET, "method": "cbs", "sparsity": 0.8, "num_gradients": 50, "loss_samples": 100}
