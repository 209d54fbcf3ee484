"""The CUDA simulator: CUDA C compiled by the machine's C++ compiler, run thread by thread."""
