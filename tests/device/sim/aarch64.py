"""The simulator built for aarch64 and run under an emulator of that processor.

`python -m tests.device.sim.aarch64`, with CXX the cross compiler: prints what each run printed.
"""

import json
import os
import subprocess
from pathlib import Path

from miniml.backends.cuda.sim import module, unit

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"
DRIVER = Path(__file__).with_name("aarch64_driver.cpp")
RUNTIME = Path(unit.__file__).with_name("runtime")

# Three warps add up a row; what they share is read behind a barrier, or without one.
SUMS = """
extern "C" __global__ void sums(const float* x, float* out, float* total, int n) {
  __shared__ float parts[3];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  BARRIER
  if (threadIdx.x == 0) {
    out[blockIdx.x] = parts[0] + parts[1] + parts[2];
    atomicAdd(total, out[blockIdx.x]);
  }
}
"""


def main() -> None:
    """Every mode and schedule, with the barrier and without it."""
    driver = Path(os.environ["MINIML_CACHE"]) / "driver"
    unit.TOOLS.run(["-std=c++17", f"-I{RUNTIME}", str(DRIVER), "-o", str(driver), "-ldl"])
    found = {}
    for name, barrier in (("right", "__syncthreads();"), ("racing", "")):
        for mode in ("fast", "check"):
            built = unit.build(SUMS.replace("BARRIER", barrier), (), mode)
            known = module.read_symbols(built)
            place = known.variables[0].address - known.anchor
            for schedule in "012":
                words = [driver, unit.runtime_library(), built, int(mode == "check")]
                command = [EMULATOR, "-L", LIBRARIES, *map(str, words), schedule, str(place)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[f"{name} {mode} {schedule}"] = done.stdout
    print(json.dumps(found))


if __name__ == "__main__":
    main()
