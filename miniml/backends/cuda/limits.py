"""Limits of a launch that every GPU supported by CUDA allows."""

MAX_THREADS = 1024  # of a block
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED = 48 * 1024  # bytes of shared memory of a block; more must be asked for
