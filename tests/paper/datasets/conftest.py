"""The stand-ins for MNIST and CIFAR-10, and a web server, as fixtures."""

from dataset_files import cifar10, mnist
from web import server

__all__ = ["cifar10", "mnist", "server"]
