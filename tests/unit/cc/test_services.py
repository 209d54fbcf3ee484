"""What native kernels get from the process: threads that sleep between calls."""

import os
import threading
import time

import numpy as np
import pytest

from miniml.backends.cc import native, units
from miniml.backends.cc.units import Source
from miniml.backends.kernel import cpu_threads, cpus
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
needs_two = pytest.mark.skipif(cpu_threads() < 2, reason="one CPU: nothing runs in parallel")

# at[0]: the number of parts; at[1]: which thread took each part; at[2]: how often each was taken.
PARTS = """
#include <pthread.h>
extern int usleep(unsigned);
static void KERNEL_part(void *data, long i) {
  char *const *at = data;
  WORK
  ((uint64_t *)at[1])[i] = (uint64_t)pthread_self();
  __sync_fetch_and_add((int64_t *)at[2] + i, 1);
}
void KERNEL(char *const *at) { miniml.parallel(KERNEL_part, (void *)at, *(int64_t *)at[0]); }
"""
BRIEF = Source(PARTS.replace("WORK", ""))
LONG = Source(PARTS.replace("WORK", "usleep(2000);"))
NESTED = Source(
    PARTS.replace("KERNEL_part", "KERNEL_inner").replace("WORK", "").partition("void KERNEL(")[0]
    + """
static void KERNEL_part(void *data, long i) {
  char *const *at = data;
  long inner = *(int64_t *)at[0];
  char *own[3] = {at[0], at[1] + 8 * i * inner, at[2] + 8 * i * inner};
  usleep(2000);
  miniml.parallel(KERNEL_inner, own, inner);
}
void KERNEL(char *const *at) { miniml.parallel(KERNEL_part, (void *)at, *(int64_t *)at[0]); }
"""
)


@pytest.fixture(autouse=True, scope="module")
def loaded():
    units.load_with_services([BRIEF, LONG, NESTED])


def taken(source, parts, threads=0, size=None):
    """How many threads took parts of a kernel, each of which must be taken once."""
    by, count = np.zeros(size or parts, np.uint64), np.zeros(size or parts, np.int64)
    call = native.Call(source, (np.array([parts]), by, count))
    native.native_run([call], threads)()
    np.testing.assert_array_equal(count, 1)
    return len(set(by.tolist()))


@pytest.mark.parametrize("parts", [1, 2, 3, 100, 1000])
def test_every_part_is_taken_once(parts):
    for _ in range(20):
        assert 1 <= taken(BRIEF, parts) <= cpu_threads()


@needs_two
def test_parts_run_at_the_same_time():
    assert any(taken(LONG, 8) == min(8, cpu_threads()) for _ in range(20))


def test_a_run_keeps_to_its_number_of_threads():
    assert {taken(LONG, 4, threads=1) for _ in range(5)} == {1}
    assert all(taken(LONG, 8, threads=2) <= 2 for _ in range(5))


def test_a_region_inside_another_one_is_serial():
    for _ in range(5):
        assert taken(NESTED, 4, size=16) <= min(4, cpu_threads())


def test_several_callers_at_once():
    failed = []

    def call():
        try:
            for _ in range(200):
                taken(BRIEF, 50)
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@needs_two
def test_threads_that_wait_use_no_time():
    taken(BRIEF, 8)
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.1)
    assert time.process_time() - before < 0.01


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_threads_of_its_own():
    taken(LONG, 8)
    child = os.fork()
    if not child:
        code = 1
        try:
            several = any(taken(LONG, 8) > 1 for _ in range(20)) or cpu_threads() == 1
            code = 0 if several else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("wanted", ["1", "1,2", " 1 "])
def test_threads_are_as_many_as_omp_num_threads_says(wanted, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert cpu_threads() == 1


@pytest.mark.parametrize("wanted", ["", "0", "many", "-1", "1000000"])
def test_other_values_of_omp_num_threads_leave_all_cpus(wanted, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert cpu_threads() == cpus() >= 1
