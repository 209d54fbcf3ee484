"""The emulation of cupy: the part of it that miniml uses, with kernels in the simulator."""
