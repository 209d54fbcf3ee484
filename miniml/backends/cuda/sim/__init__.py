"""The CUDA simulator: CUDA C compiled by the machine's C++ compiler, run thread by thread.

    module.py      Module(code, options).kernel(name).launch(grid, block, args)
    unit.py        from the text to a shared library in the cache folder
    notes.py       what the compiler warns of: local variables that are read too early
    dialect.py     what of CUDA C is not there, in sentences
    toolchain.py   the compiler as it is used here, what it made
    symbols.py     the addresses of shared arrays and variables in that library
    arguments.py   what is passed, against the kernel's parameters
    ranges.py      which memory a launch may touch
    memory.py      device memory: poison, guard zones, a record of what has been written
    faults.py      what a kernel did wrong, with lines of the user's own text
    settings.py    mode, schedule, seed
    include/       CUDA C for a C++ compiler; runtime/: fibers, barriers, warps, the checker

Not modelled: the weak order of a GPU's memory beyond barriers and fences, shared memory used by
blocks of one cluster, inline PTX, textures, bank conflicts, registers, time.
Numbers differ from a GPU's in the last digits: no fused multiply-add unless written, denormals
kept, libm's functions. Blocks run one after the other, so a block that waits for a later one waits
for ever: a fault when its time is over. `static` variables in device functions
are taken for __shared__ ones, and unsigned integers wrap unseen.
"""
