"""The CUDA backend: device memory, kernels and their text, on a GPU through cupy or in the
simulator."""
