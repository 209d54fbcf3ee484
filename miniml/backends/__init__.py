"""How operations are computed: kernels and devices, which know arrays and plain data only."""
