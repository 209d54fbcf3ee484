"""The part of cupy that the CUDA backend may use: these names and no others.

emucupy has them all; a test looks for each in cupy, and for others in the backend's source.
"""

from __future__ import annotations

SURFACE = (
    "RawModule",
    "RawModule.get_function",
    "RawKernel.__call__",
    "RawKernel.max_dynamic_shared_size_bytes",
    "asarray",
    "empty",
    "zeros",
    "get_default_memory_pool",
    "ndarray",
    "ndarray.copy",
    "ndarray.data",
    "ndarray.dtype",
    "ndarray.fill",
    "ndarray.get",
    "ndarray.itemsize",
    "ndarray.nbytes",
    "ndarray.ndim",
    "ndarray.reshape",
    "ndarray.set",
    "ndarray.shape",
    "ndarray.size",
    "ndarray.view",
    "ndarray.__getitem__",
    "ndarray.__setitem__",
    "cuda.Device",
    "cuda.Device.attributes",
    "cuda.Device.compute_capability",
    "cuda.Device.synchronize",
    "cuda.Device.use",
    "cuda.Event",
    "cuda.Event.record",
    "cuda.Event.synchronize",
    "cuda.MemoryPool.free_all_blocks",
    "cuda.MemoryPool.get_limit",
    "cuda.MemoryPool.set_limit",
    "cuda.MemoryPool.total_bytes",
    "cuda.MemoryPool.used_bytes",
    "cuda.Stream",
    "cuda.Stream.null",
    "cuda.Stream.record",
    "cuda.Stream.synchronize",
    "cuda.Stream.wait_event",
    "cuda.get_current_stream",
    "cuda.get_elapsed_time",
    "cuda.memory.OutOfMemoryError",
    "cuda.runtime.CUDARuntimeError",
    "cuda.runtime.driverGetVersion",
    "cuda.runtime.getDeviceCount",
    "cuda.runtime.runtimeGetVersion",
)

# What a device with the feature "cublas" has besides; emucupy has none of it.
CUBLAS = (
    "cuda.cublas",
    "cuda.cublas.gemmStridedBatchedEx",
    "cuda.cublas.getMathMode",
    "cuda.cublas.setMathMode",
    "cuda.get_cublas_handle",
)
