"""Programs of several ranks, made of collectives: `mpiexec -n 2 python -m mpi4py FILE`."""
