"""A model of one's own for the command, and options that make it quick."""

from collections.abc import Callable
from pathlib import Path

MODEL = Path(__file__).parents[1] / "app" / "runs" / "own_model.py"
TARGET = f"{MODEL}:build"
QUICK = ["-k", "60", "--set", "loss_samples=200", "--seed", "1", "--quiet"]
Run = Callable[..., str]
"""Calls the command, checks its status, and returns what it printed."""
TARGETS = """
import torch
from torch import nn

def pair():
    return nn.Linear(4, 3), (torch.randn(20, 4), torch.randint(3, (20,)))

def triple(width=3):
    return nn.Linear(4, width), (torch.randn(20, 4), torch.randn(20, width)), "mse"

def named():
    model, data = pair()
    return {"model": model, "data": data, "test": data}

def scored():
    return {"model": nn.Linear(4, 3), "score": lambda model: 7}

def broken():
    raise KeyError("cifar")

def misnamed():
    return {"modell": nn.Linear(4, 3)}

def nothing():
    return 3

constant = 5
"""
