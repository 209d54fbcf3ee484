// Runs the kernel `sums` in the simulator without Python: for a processor that is itself emulated.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

typedef int (*LaunchCall)(void (*)(void**), void**, const unsigned*, const unsigned*, char*,
                          const sim::Buffer*, int, const sim::Options*, sim::Fault*, int,
                          uint64_t*);

// driver RUNTIME UNIT CHECK SCHEDULE PLACE: of the shared array, from the anchor of the unit
int main(int, char** words) {
  void* runtime = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
  void* unit = dlopen(words[2], RTLD_NOW);
  if (!runtime || !unit) return fprintf(stderr, "%s\n", dlerror()), 2;
  auto launch = (LaunchCall)dlsym(runtime, "sim_launch");
  auto kernel = (void (*)(void**))dlsym(unit, "sim_enter_sums");
  const int blocks = 3, n = 1000;
  static float x[blocks * n], out[blocks], total[1];
  for (int i = 0; i < blocks * n; ++i) x[i] = float(i % 7);
  const float *px = x;
  float *po = out, *pt = total;
  int size = n;
  void* arguments[] = {&px, &po, &pt, &size};
  sim::Buffer buffers[] = {
      {(char*)x, sizeof x, nullptr, "argument 0", 4, 1, 0, 0},
      {(char*)out, sizeof out, nullptr, "argument 1", 4, 0, 0, 0},
      {(char*)total, sizeof total, nullptr, "argument 2", 4, 0, 0, 0},
      {(char*)dlsym(unit, "sim_anchor") + atoll(words[5]), 3 * sizeof(float), nullptr,
       "shared array parts", 4, 0, 1, 0}};
  const unsigned grid[] = {blocks, 1, 1}, block[] = {96, 1, 1};
  sim::Options options = {words[3][0] == '1', words[4][0] - '0', 5, 60.0};
  static sim::Fault faults[4];
  uint64_t used;
    const int count = launch(kernel, arguments, grid, block, nullptr, buffers, 4, &options, faults, 4,
                           &used);
  for (int i = 0; i < count; ++i) printf("%s\n", faults[i].text);
  printf("%g %g %g %g\n", out[0], out[1], out[2], total[0]);
  return 0;
}
