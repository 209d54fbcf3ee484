"""CUDA C text, assembled from parts and compiled to launchable functions."""
