"""Functions made of primitives, which have no kernels and no gradient rules of their own."""
