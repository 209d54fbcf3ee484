// float4 and its kin, with CUDA's alignments; make_float4.
#pragma once

#define SIM_VECTOR(T, NAME, ALIGN2, ALIGN4)                                                      \
  struct NAME##1 { T x; };                                                                       \
  struct __attribute__((aligned(ALIGN2))) NAME##2 { T x, y; };                                   \
  struct NAME##3 { T x, y, z; };                                                                 \
  struct __attribute__((aligned(ALIGN4))) NAME##4 { T x, y, z, w; };                             \
  SIM_INLINE NAME##1 make_##NAME##1(T x) { return {x}; }                                         \
  SIM_INLINE NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                 \
  SIM_INLINE NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                         \
  SIM_INLINE NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

SIM_VECTOR(signed char, char, 2, 4)
SIM_VECTOR(unsigned char, uchar, 2, 4)
SIM_VECTOR(short, short, 4, 8)
SIM_VECTOR(unsigned short, ushort, 4, 8)
SIM_VECTOR(int, int, 8, 16)
SIM_VECTOR(unsigned int, uint, 8, 16)
SIM_VECTOR(long, long, 16, 16)
SIM_VECTOR(unsigned long, ulong, 16, 16)
SIM_VECTOR(long long, longlong, 16, 16)
SIM_VECTOR(unsigned long long, ulonglong, 16, 16)
SIM_VECTOR(float, float, 8, 16)
SIM_VECTOR(double, double, 16, 16)
