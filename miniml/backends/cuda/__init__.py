"""The CUDA backend: device memory and kernels, on a GPU through cupy or in the simulator."""
