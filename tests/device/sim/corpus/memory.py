"""Misaligned, uninitialised and constant memory."""

import numpy as np

from .case import Case, e, f, n32, z


def between(name: str, type_: str, step: int, call: str, include: str = "") -> tuple[Case, Case]:
    """An atomic of global and of shared memory, `step` bytes behind a place that suits its type."""
    aside = ("+ 16", f"+ {16 + step}")
    return (
        Case(
            f"atomic_{name}",
            "misaligned",
            f"""{include}
@(unsigned char* raw) {{
  {type_}* p = ({type_}*)(raw + 16);
  {call}; //!
}}""",
            aside,
            lambda: (z(64, np.uint8),),
            block=(8,),
        ),
        Case(
            f"atomic_{name}_shared",
            "misaligned",
            f"""{include}
@(unsigned char* raw) {{
  __shared__ __align__(16) unsigned char bytes[64];
  for (int k = threadIdx.x; k < 64; k += 8) bytes[k] = 0;
  __syncthreads();
  {type_}* p = ({type_}*)(bytes + 16);
  {call}; //!
  __syncthreads();
  raw[threadIdx.x] = bytes[threadIdx.x];
}}""",
            aside,
            lambda: (z(64, np.uint8),),
            block=(8,),
        ),
    )


# fmt: off
ATOMICS = (
    between("add_int", "int", 2, "atomicAdd(p, 1)")
    + between("add_float", "float", 1, "atomicAdd(p, 1.0f)")
    + between("add_double", "double", 4, "atomicAdd(p, 1.0)")
    + between("add_float2", "float2", 4, "atomicAdd(p, make_float2(1, 2))")
    + between("add_float4", "float4", 8, "atomicAdd(p, make_float4(1, 2, 3, 4))")
    + between("add_half2", "__half2", 2, "atomicAdd(p, __floats2half2_rn(1, 2))",
              "#include <cuda_fp16.h>")
    + between("cas_64", "unsigned long long", 4, "atomicCAS(p, 0ull, 1ull)")
    + between("cas_16", "unsigned short", 1, "atomicCAS(p, (unsigned short)0, (unsigned short)1)")
    + between("exchange", "unsigned", 3, "atomicExch(p, 7u)")
    + between("max_64", "long long", 4, "atomicMax(p, 7ll)")
    + between("or_of_a_block", "int", 2, "atomicOr_block(p, 4)")
)
CASES = ATOMICS + (
    Case("vector_off_by_one", "misaligned", """
@(const float* x, float* y) {
  int k = threadIdx.x;
  *(float4*)(y + 4 * k) = *(const float4*)(x + 4 * k); //!
}""", ("(x + 4 * k)", "(x + 4 * k + 1)"), lambda: (f(64), e(64)), block=(8,)),
    Case("double_in_bytes", "misaligned", """
@(unsigned char* raw, double* y) {
  y[threadIdx.x] = ((const double*)(raw + 8))[threadIdx.x]; //!
}""", ("raw + 8", "raw + 4"), lambda: (z(128, np.uint8), e(8, np.float64)), block=(8,)),
    Case("view_at_odd_bytes", "misaligned", """
@(const unsigned char* raw, int* y) {
  y[threadIdx.x] = *(const int*)(raw + 4 * threadIdx.x); //!
}""", ("", ""), lambda: (z(64, np.uint8)[4:40], e(8, n32)), block=(8,),
         broken_args=lambda: (z(64, np.uint8)[1:40], e(8, n32))),
    Case("partials_of_absent_warps", "uninitialised", """
@(const float* x, float* y) {
  __shared__ float part[32];
  int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  if (lane == 0) part[w] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = lane < 2 ? part[lane] : 0; //!
}""", ("lane < 2 ? part[lane] : 0", "part[lane]"), lambda: (f(64), e(64))),
    Case("sum_into_nothing", "uninitialised", """
@(const float* x, float* y) {
  atomicAdd(y, x[threadIdx.x]); //!
}""", ("", ""), lambda: (f(64), z(1)), broken_args=lambda: (f(64), e(1))),
    Case("accumulates_into_output", "uninitialised", """
@(const float* x, float* y) {
  y[threadIdx.x] = 2 * x[threadIdx.x]; //!
}""", ("y[threadIdx.x] =", "y[threadIdx.x] +="), lambda: (f(64), e(64))),
    Case("dynamic_never_written", "uninitialised", """
@(const float* x, float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x]; //!
}""", ("s[threadIdx.x] = x[threadIdx.x];",
         "if (threadIdx.x < 60) s[threadIdx.x] = x[threadIdx.x];"),
         lambda: (f(64), e(64)), shared_mem=256),
    Case("workspace_of_last_block", "uninitialised", """
@(float* work, float* y) {
  work[blockIdx.x * 32 + threadIdx.x] = 1;
  y[blockIdx.x * 32 + threadIdx.x] = work[blockIdx.x * 32 + threadIdx.x]; //!
}""", ("work[blockIdx.x * 32 + threadIdx.x] = 1", "if (blockIdx.x == 0) work[threadIdx.x] = 1"),
         lambda: (e(64), e(64)), grid=(2,), block=(32,)),
    Case("shared_of_the_block_before", "uninitialised", """
@(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = threadIdx.x;
  y[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x]; //!
}""", ("s[threadIdx.x] = threadIdx.x", "if (blockIdx.x % 2 == 0) s[threadIdx.x] = threadIdx.x"),
         lambda: (e(128),), grid=(4,), block=(32,)),
    Case("writes_its_input", "const-write", """
@(const float* x, float* y) {
  float* out = y;
  out[threadIdx.x] = 2 * x[threadIdx.x]; //!
}""", ("out = y", "out = const_cast<float*>(x)"), lambda: (f(64), e(64))),
    Case("writes_a_table", "const-write", """
__constant__ float weights_of_table[4] = {1, 2, 3, 4};
@(float* y) {
  float copy[4];
  float* table = threadIdx.x < 64 ? copy : const_cast<float*>(weights_of_table);
  table[threadIdx.x & 3] = 0; //!
  y[threadIdx.x] = weights_of_table[threadIdx.x & 3];
}""", ("threadIdx.x < 64", "threadIdx.x < 1"), lambda: (e(64),)),
)
