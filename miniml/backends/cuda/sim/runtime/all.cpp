// The whole runtime as one unit: one call of the compiler.
#include "barriers.cpp"
#include "checker.cpp"
#include "faults.cpp"
#include "fibers.cpp"
#include "hooks.cpp"
#include "launch.cpp"
#include "watch.cpp"
