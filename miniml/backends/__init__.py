"""Backends: kernels and devices, which depend only on arrays and plain data."""
