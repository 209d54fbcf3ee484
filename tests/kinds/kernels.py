"""Kinds of CUDA kernels, wrong and right, for the simulator."""

from __future__ import annotations

from typing import Any

from .kind import Kind, kinds_of
from .launches import Launched

FAULTS: list[Kind] = []
RIGHTS: list[Kind] = []


def wrong(*rows: Any, says: str) -> Any:
    return kinds_of("simulator", FAULTS)(*rows, says=says)


right = kinds_of("simulator", RIGHTS)
OWN = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"


def body(text: str, before: str = "", **more: Any) -> Launched:
    """A kernel of these statements, in which t is the thread and i its place among all."""
    return Launched(f"{before}\n@ {{\n  {OWN}\n{text}\n}}\n", **more)


# Addresses.
ATOMICS = {
    "add int": ("int", "atomicAdd(({0}*)p, 1)"),
    "add float": ("float", "atomicAdd(({0}*)p, 1.0f)"),
    "add double": ("double", "atomicAdd(({0}*)p, 1.0)"),
    "add 64 bits": ("unsigned long long", "atomicAdd(({0}*)p, 1ull)"),
    "compare": ("unsigned", "atomicCAS(({0}*)p, 0u, 7u)"),
    "compare 64 bits": ("unsigned long long", "atomicCAS(({0}*)p, 0ull, 7ull)"),
    "exchange": ("float", "atomicExch(({0}*)p, 2.0f)"),
    "largest": ("int", "atomicMax(({0}*)p, 7)"),
    "bits": ("unsigned", "atomicOr(({0}*)p, 4u)"),
}


def atomic(which: str, space: str, by: int) -> Launched:
    kind, call = ATOMICS[which]
    where = "(char*)y" if space == "global" else "(char*)own"
    return body(f"""
  __shared__ double own[40];
  if (t < 40) own[t] = 0;
  y[i] = 0;
  __syncthreads();
  if (i == 0) {{ char* p = {where} + {by}; {call.format(kind)}; }}
  __syncthreads();
  if (i == 1) y[i] += own[0];""")


@wrong(
    *(
        (
            which,
            "shared" if k % 3 == 2 else "global",
            4 if "64" in which or "double" in which else 2,
        )
        for k, which in enumerate(ATOMICS)
    ),
    ("add float", "shared", 1),
    says="misaligned",
)
def an_atomic_at_an_address_off_by(which: str, space: str, by: int) -> Launched:
    return atomic(which, space, by)


@right(
    *(
        (which, "shared" if k % 2 else "global", 8 if "64" in which or "double" in which else 4)
        for k, which in enumerate(ATOMICS)
    )
)
def an_atomic_at_an_address_of_its_own_size(which: str, space: str, by: int) -> Launched:
    return atomic(which, space, by)


@wrong(("float4", 1), ("float2", 1), ("double", 1), ("int4", 2), says="misaligned")
def a_wide_access_starts_between(kind: str, by: int) -> Launched:
    return body(f"  {kind} v = *(const {kind}*)(x + 8 * (t % 4) + {by}); y[i] = *(float*)&v;")


@right(("float4", 4), ("float2", 2), ("double", 2), ("int4", 0))
def a_wide_access_on_its_boundary(kind: str, by: int) -> Launched:
    return body(f"  {kind} v = *(const {kind}*)(x + 8 * (t % 4) + {by}); y[i] = *(float*)&v;")


# (condition of the guard, what is read)
@wrong(
    ("i <= n", "x[i]"),
    ("i < n", "x[i + 1]"),
    ("i < n", "x[i - 1]"),
    ("i < n", "x[2 * i]"),
    says="out-of-bounds",
)
def the_guard_lets_too_many_in(guard: str, read: str) -> Launched:
    return body(
        f"""
  if (i == n - 1) i += {int("=" in guard)};
  if ({guard}) y[i] = {read};
  else y[n - 1] = {read};"""
    )


@right(
    ("i < n", "x[i]"),
    ("i < n", "i + 1 < n ? x[i + 1] : 0"),
    ("i < n", "i ? x[i - 1] : 0"),
    ("true", "x[i % n]"),
)
def the_guard_lets_just_enough_in(guard: str, read: str) -> Launched:
    return body(f"  if ({guard}) y[i] = {read};")


@wrong(64, 65, 128, says="out-of-bounds")
def a_shared_array_of_fewer_than_it_needs(reach: int) -> Launched:
    return body(
        f"""
  __shared__ float s[64]; s[t] = 0; __syncthreads();
  if (t == 3) s[{reach}] = 1;
  y[i] = s[t];"""
    )


@right(("volatile float", 64), ("float", 65), ("double", 64))
def a_shared_array_of_as_many_as_it_needs(kind: str, n: int) -> Launched:
    return body(f"  __shared__ {kind} s[{n}]; s[t] = x[i]; __syncthreads(); y[i] = s[63 - t];")


# What was never written.
STRUCT = "struct Hit { float a, b, c; };\nstruct Ray { Hit near, far; int count; };\n"


@wrong("one field", "of a branch", "inner", "by a pointer", "in a loop", says="uninitialised")
def a_field_of_a_structure_is_never_written(where: str) -> Launched:
    text = {
        "one field": "Hit h; h.a = x[i]; h.c = 1; y[i] = h.a + h.b + h.c;",
        "of a branch": "Hit h; h.a = 0; if (x[i] >= 4) h.b = x[i]; y[i] = h.a + h.b;",
        "inner": "Ray r; r.near.a = r.far.a = x[i]; r.count = 1; y[i] = r.near.a + r.far.b;",
        "in a loop": "Hit h; for (int k = 0; k < 3; ++k) { h.a = k; y[i] = h.a + h.c; }",
        "by a pointer": "Hit h; fill(&h, x[i]); y[i] = h.a + h.c;",
    }[where]
    before = (
        STRUCT
        + """struct Row { float v[4]; };
__device__ void fill(Hit* h, float v) { h->a = v; h->b = v; }"""
    )
    return body("  " + text.replace("; ", ";\n  "), before)


@right(
    "a constructor",
    "braces",
    "copied whole",
    "written in turns",
    "read in part",
    "in a function",
    "in both branches",
)
def a_structure_whose_fields_are_written(how: str) -> Launched:
    text = {
        "a constructor": "Sum s(x[i]); y[i] = s.total + s.count;",
        "braces": "Hit h = {x[i]}; y[i] = h.a + h.b + h.c;",
        "copied whole": "Hit h = {x[i], 1, 2}, g; g = h; y[i] = g.a + g.c;",
        "written in turns": "Row r; for (int k = 0; k < 4; ++k) r.v[k] = k; y[i] = r.v[t % 4];",
        "read in part": "Hit h; h.a = x[i]; h.c = 1; Hit g = h; y[i] = g.a + g.c;",
        "in a function": "Hit h = of(x[i]); y[i] = h.a + h.b + h.c;",
        "in both branches": "Hit h; if (t) h.a = h.b = 2; else h.a = h.b = t; y[i] = h.a + h.b;",
    }[how]
    before = (
        STRUCT
        + """struct Row { float v[4]; };
struct Sum {
  float total; int count;
  __device__ Sum(float v) : total(v), count(1) {}
};
__device__ Hit of(float v) { Hit h; h.a = v; h.b = v + 1; h.c = v / 2; return h; }"""
    )
    return body(f"  {text}", before)


@wrong("s[t ^ 1]", "t < 32 ? s[t] : s[t - 32 + 1]", "s[63]", says="uninitialised")
def shared_memory_is_read_before_it_is_written(read: str) -> Launched:
    return body(
        f"""
  __shared__ float s[64];
  if (t % 2 == 0) s[t] = x[i];
  __syncthreads();
  y[i] = {read};"""
    )


@right(
    "for (int k = i; k < n; k += gridDim.x * blockDim.x) y[k] = x[k];",
    "y[n - 1 - i] = x[i];",
    "if (t % 2 == 0) { y[i] = x[i]; y[i + 1] = 0; }",
    "if (i % 4 == 0) *(float4*)(y + i) = *(const float4*)(x + i);",
)
def all_places_are_written_by_someone(text: str) -> Launched:
    return body(f"  {text}")


# Barriers and races.
@wrong(
    "if (t < 32)",
    "if (t % 2)",
    "for (int k = 0; k < t / 32 + 1; ++k)",
    "if (x[i] > 4)",
    says="divergent-barrier",
)
def not_all_threads_reach_a_barrier(when: str) -> Launched:
    """And shared memory is read behind it, so that races follow from it."""
    return body(f"""
  __shared__ float s[64];
  s[t] = x[i];
  {when} __syncthreads();
  y[i] = s[(t + 33) % 64];""")


@wrong(
    ("16", "if (t < half) s[t] += s[t + half];"),
    ("32", "if (t % (64 / half) == 0) s[t] += s[t + 32 / half];"),
    says="divergent-barrier",
)
def a_barrier_inside_of_the_branch_of_a_tree(start: str, step: str) -> Launched:
    step = step.replace("s[t] +=", "{ s[t] +=", 1).replace(";", "; __syncthreads(); }")
    return body(f"""
  __shared__ float s[128];
  s[t] = x[i]; s[t + 64] = 0;
  __syncthreads();
  for (int half = {start}; half > 0; half /= 2) {step}
  y[i] = s[0];""")


@right("if (blockIdx.x == 0)", "if (n > 10)", "for (int k = 0; k < 3; ++k)", "if (t < 64)", "do")
def all_threads_reach_a_barrier(when: str) -> Launched:
    ends = " while (n < 0);" if when == "do" else ""
    return body(f"""
  __shared__ float s[64];
  s[t] = x[i];
  {when} {{ __syncthreads(); }}{ends}
  __syncthreads();
  y[i] = s[(t + 33) % 64];""")


REVERSE = """
  __shared__ float s[64];
  for (int k = 0; k < 2; ++k) {{
    s[t] = x[i] + k;
    {0}
    float v = s[63 - t];
    {1}
    y[i] = v;
  }}"""


@wrong(
    ("", "__syncthreads();"),
    ("__syncthreads();", ""),
    ("__syncwarp();", "__syncthreads();"),
    ("", ""),
    says="race|uninitialised",
)
def shared_memory_without_a_barrier(before: str, behind: str) -> Launched:
    return body(REVERSE.format(before, behind))


@right(
    ("__syncthreads();", "__syncthreads();"),
    ("__syncthreads_or(0);", "__syncthreads();"),
    ("__threadfence_block(); __syncthreads();", "__syncthreads_count(t);"),
)
def shared_memory_with_a_barrier(before: str, behind: str) -> Launched:
    return body(REVERSE.format(before, behind))


@wrong(
    "y[0] += x[i];",
    "y[t % 8] = y[t % 8] + 1;",
    "if (x[i] > 2) y[1] = i;",
    "y[i] = 0; y[(i + 1) % n] = 1;",
    says="race",
)
def many_threads_write_one_place(text: str) -> Launched:
    return body(f"  {text}", fill=True)


@right(
    "atomicAdd(y, x[i]);",
    "atomicAdd(y + t % 8, 1.0f);",
    "if (t == 0) y[blockIdx.x] += 1;",
    "int b = (int)x[i]; if (b < 8) atomicAdd((int*)y + b, 1);",
    "atomicExch(y + t % 4, x[i]);",
)
def many_threads_add_to_one_place(text: str) -> Launched:
    return body(f"  {text}", fill=True)


@wrong(16, 8, 4, 1, says="race")
def a_tree_whose_last_steps_lack_the_barrier(below: int) -> Launched:
    return body(f"""
  __shared__ float s[64];
  s[t] = x[i];
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {{
    if (t < half) s[t] += s[t + half];
    if (half > {below}) __syncthreads();
  }}
  y[i] = s[0];""")


@right("__syncthreads();", "if (half > 32) __syncthreads(); else __syncwarp();")
def a_tree_whose_steps_wait(wait: str) -> Launched:
    return body(f"""
  __shared__ float s[64];
  s[t] = x[i];
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {{
    float v = t < half ? s[t] + s[t + half] : 0;
    __syncthreads();
    if (t < half) s[t] = v;
    {wait}
  }}
  __syncthreads();
  y[i] = s[0];""")


# Warps.
@wrong(
    "if (t % 32 < 16) v += __shfl_down_sync(0xffffffffu, v, 8);",
    "v = __shfl_sync(0x0000ffffu, v, 0);",
    "if (t % 2) v = __any_sync(0xffffffffu, v > 1); __syncwarp();",
    says="warp-mask",
)
def a_mask_names_other_lanes(text: str) -> Launched:
    return body(f"  float v = x[i];\n  {text}\n  y[i] = v;", block=(32,))


@right(
    "for (int k = 16; k; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);",
    "if (t % 32 < 16) v += __shfl_down_sync(0x0000ffffu, v, 8, 16);",
    "unsigned m = __ballot_sync(0xffffffffu, v > 4); v = __popc(m);",
    "unsigned m = __activemask(); v = __shfl_sync(m, v, __ffs(m) - 1);",
)
def a_mask_names_the_lanes_that_come(text: str) -> Launched:
    return body(f"  float v = x[i];\n  {text}\n  y[i] = v;")


@right("atomicAdd", "atomicSub", "atomicOr")
def one_lane_speaks_for_its_warp(atomic: str) -> Launched:
    """What is passed to a shuffle may be unwritten in the other lanes."""
    return body(
        f"""
  bool takes = x[i] > 3;
  unsigned active = __ballot_sync(0xffffffffu, takes);
  if (takes) {{
    int leader = __ffs(active) - 1, base;
    if (t % 32 == leader) base = {atomic}((int*)y, __popc(active));
    base = __shfl_sync(active, base, leader);
    if (i) y[i] = base < -n;
  }}""",
        fill=True,
    )


# Numbers.
@wrong(
    ("int v = 2147483647 - 3; y[i] = v + t;", "overflow"),
    ("y[i] = 1 << (t + 20);", "shift"),
    ("y[i] = (int)(x[i] * 1e9f + 3e9f);", "conversion"),
    ("y[i] = 100 / (t % 4);", "division"),
    ("y[i] = i * 2000000000;", "overflow"),
    ("y[i] = 5 % (int)(t / 8);", "division"),
    ("y[i] = 1 >> (n - 130);", "shift"),
    says="",
)
def arithmetic_that_is_undefined(text: str, kind: str) -> Launched:
    return body(f"  {text}", kind=kind)


@right(
    "unsigned v = 4294967290u; y[i] = v + t;",
    "y[i] = 1u << (t % 32);",
    "y[i] = (int)(x[i] * 1e8f);",
    "y[i] = 100 / (t % 4 + 1);",
    "y[i] = (long long)i * 2000000000 % 7;",
    "y[i] = x[i] / 0.0f > 1;",
    "y[i] = -7 >> 1;",
)
def arithmetic_that_is_defined(text: str) -> Launched:
    return body(f"  {text}")


# Launches.
@wrong(
    "while (y[0] == 0) {}",
    "for (int k = 0; k < 10; k *= 2) if (k > 10) y[1] = k;",
    "while (t >= 0) __syncwarp();",
    says="hang",
)
def a_loop_never_ends(text: str) -> Launched:
    return body(
        f"  {text.replace('y[0]', '((volatile float*)y)[0]')}\n  y[i] = 1;", fill=True, seconds=0.2
    )


@right(
    "for (int k = 1; k < 1024; k *= 2) v += k;",
    "while (v > 1) v /= 2;",
    "do v -= 1; while (v > 0);",
    "for (long long k = 0; k < 20000; ++k) v += 1e-9f;",
)
def a_loop_ends(text: str) -> Launched:
    return body(f"  float v = x[i];\n  {text}\n  y[i] = v;")


@wrong(
    "((float*)x)[i] = 1;",
    "atomicAdd((float*)x + t, 1.0f);",
    "if (i == 3) *(float4*)x = make_float4(1, 2, 3, 4);",
    says="const-write",
)
def an_input_is_written(text: str) -> Launched:
    return body(f"  {text}\n  y[i] = 1;")


@right("the last block", "double buffer", "dynamic shared", "rows of a tile")
def an_idiom_of_many_threads(which: str) -> Launched:
    if which == "the last block":
        return body(
            """
  __shared__ bool last;
  ((volatile float*)y)[8 + i % 8] = 1;
  if (t == 0) {
    y[2 + blockIdx.x] = x[i];
    __threadfence();
    last = atomicAdd((int*)y, 1) == gridDim.x - 1;
  }
  __syncthreads();
  volatile float* parts = (volatile float*)y + 2;
  if (last && t == 0) { __threadfence(); y[1] = parts[0] + parts[1]; }""",
            fill=True,
        )
    if which == "double buffer":
        return body("""
  __shared__ float s[2][64];
  s[0][t] = x[i];
  for (int k = 0; k < 4; ++k) {
    __syncthreads();
    s[1 - k % 2][t] = s[k % 2][(t + 1) % 64];
  }
  y[i] = s[0][t];""")
    if which == "dynamic shared":
        return body(
            """
  extern __shared__ char raw[];
  float* s = (float*)raw; int* c = (int*)(s + 64);
  s[t] = x[i]; c[t] = t;
  __syncthreads();
  y[i] = s[c[63 - t]];""",
            shared=512,
        )
    return body("""
  __shared__ float tile[8][9];
  tile[t / 8][t % 8] = x[i];
  __syncthreads();
  y[i] = tile[t % 8][t / 8];""")
