"""Declarations of CUDA kernels; the device that runs them is not part of this version."""
