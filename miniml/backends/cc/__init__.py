"""Provider "cc": CPU kernels in C, compiled at run time by the machine's compiler."""
