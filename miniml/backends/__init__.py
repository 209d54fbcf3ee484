"""How operations are computed: kernels and devices, which only know arrays and plain data."""
