"""The stand-ins for MNIST and CIFAR-10, as fixtures."""

from dataset_files import cifar10, mnist

__all__ = ["cifar10", "mnist"]
