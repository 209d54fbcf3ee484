"""The steps of tools/gpu_check.py: each a module that runs in a process of its own."""
