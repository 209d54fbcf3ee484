"""How steps are run: as one Python function, or as a CUDA graph of what that function launches."""
