"""Saved graphs: JSON text that people can read and compare, and safetensors beside it."""

from .read import load_graph as load_graph
from .write import save_graph as save_graph
