"""CUDA C from parts, up to a function that can be launched."""
