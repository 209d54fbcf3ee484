// Atomics: a fiber hands over only where it waits, so an ordinary read and write is one step.
#pragma once

extern "C" {
// Says that an atomic touches n bytes; `reads` is 0 for one that does not look at the old value.
void sim_atomic(const void* address, size_t n, int reads, const void* caller);
}

// Not inline, and not instrumented: the return address is then the user's line.
#define SIM_ATOMIC_BODY SIM_UNCHECKED static __attribute__((noinline, unused))
#define SIM_ATOMIC_SCOPES(NAME, T, ARGUMENTS, PASSED)                                            \
  SIM_UNCHECKED static __attribute__((always_inline, unused)) inline T NAME##_block ARGUMENTS {  \
    return NAME PASSED;                                                                          \
  }                                                                                              \
  SIM_UNCHECKED static __attribute__((always_inline, unused)) inline T NAME##_system ARGUMENTS { \
    return NAME PASSED;                                                                          \
  }
#define SIM_ATOMIC(NAME, T, READS, NEW)                                    \
  SIM_ATOMIC_BODY T NAME(T* address, T value) {                            \
    sim_atomic(address, sizeof(T), READS, __builtin_return_address(0));    \
    T old = *address;                                                      \
    *address = (T)(NEW);                                                   \
    return old;                                                            \
  }                                                                        \
  SIM_ATOMIC_SCOPES(NAME, T, (T * address, T value), (address, value))

// The types are NVRTC's: there is no atomicAdd for long long.
SIM_ATOMIC(atomicAdd, int, 1, (unsigned)old + (unsigned)value)
SIM_ATOMIC(atomicAdd, unsigned, 1, old + value)
SIM_ATOMIC(atomicAdd, unsigned long long, 1, old + value)
SIM_ATOMIC(atomicAdd, float, 1, old + value)
SIM_ATOMIC(atomicAdd, double, 1, old + value)
SIM_ATOMIC(atomicSub, int, 1, (unsigned)old - (unsigned)value)
SIM_ATOMIC(atomicSub, unsigned, 1, old - value)
SIM_ATOMIC(atomicExch, int, 0, value)
SIM_ATOMIC(atomicExch, unsigned, 0, value)
SIM_ATOMIC(atomicExch, unsigned long long, 0, value)
SIM_ATOMIC(atomicExch, float, 0, value)
// Each number is added by itself; the check sees all as one.
#define SIM_ATOMIC_VECTOR(T, NEW)                                          \
  SIM_ATOMIC_BODY T atomicAdd(T* address, T value) {                       \
    sim_atomic(address, sizeof(T), 1, __builtin_return_address(0));        \
    T old, sum;                                                            \
    __builtin_memcpy(&old, address, sizeof old);                           \
    sum = NEW;                                                             \
    __builtin_memcpy(address, &sum, sizeof sum);                           \
    return old;                                                            \
  }
SIM_ATOMIC_VECTOR(float2, make_float2(old.x + value.x, old.y + value.y))
SIM_ATOMIC_VECTOR(float4, make_float4(old.x + value.x, old.y + value.y, old.z + value.z,
                                      old.w + value.w))
#define SIM_ATOMIC_INTEGER(T)                              \
  SIM_ATOMIC(atomicMax, T, 1, old > value ? old : value)   \
  SIM_ATOMIC(atomicMin, T, 1, old < value ? old : value)   \
  SIM_ATOMIC(atomicAnd, T, 1, old & value)                 \
  SIM_ATOMIC(atomicOr, T, 1, old | value)                  \
  SIM_ATOMIC(atomicXor, T, 1, old ^ value)
SIM_ATOMIC_INTEGER(int)
SIM_ATOMIC_INTEGER(unsigned)
SIM_ATOMIC_INTEGER(long long)
SIM_ATOMIC_INTEGER(unsigned long long)
SIM_ATOMIC(atomicInc, unsigned, 1, old >= value ? 0 : old + 1)
SIM_ATOMIC(atomicDec, unsigned, 1, old == 0 || old > value ? value : old - 1)

#define SIM_ATOMIC_CAS(T)                                                                        \
  SIM_ATOMIC_BODY T atomicCAS(T* address, T compare, T value) {                                  \
    sim_atomic(address, sizeof(T), 1, __builtin_return_address(0));                              \
    T old = *address;                                                                            \
    if (old == compare) *address = value;                                                        \
    return old;                                                                                  \
  }                                                                                              \
  SIM_ATOMIC_SCOPES(atomicCAS, T, (T * address, T compare, T value), (address, compare, value))
SIM_ATOMIC_CAS(int)
SIM_ATOMIC_CAS(unsigned)
SIM_ATOMIC_CAS(unsigned long long)
SIM_ATOMIC_CAS(unsigned short)
