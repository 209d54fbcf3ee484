"""`python -m benchmarks`: run every measurement and print its result beside the aim."""

from benchmarks import busy, checkers, eager, fit, kernels, train_step, watched
from benchmarks import compile as once
from benchmarks.first import lines as first_calls
from benchmarks.measure import machine
from benchmarks.networks import report, turns
from miniml.backends.kernel import cpu_threads


def verdict(value: float, aim: float) -> str:
    """The aim, and whether the value meets it."""
    return f"aim {aim}: {'met' if value <= aim else 'MISSED'}"


def main() -> None:
    """Print one line a measurement, after a line on the machine."""
    print(machine())
    for name, found, aim in train_step.run():
        print(f"{name}, against NumPy by hand: {found}; {verdict(found.ratio, aim)}")
    for rows in turns.every(turns.KINDS, range(1, min(cpu_threads(), 2) + 1)):
        group = report.Group(rows)
        aim = "" if group.aim is None else f"; {verdict(group.ratio, group.aim)}"
        print(*turns.lines(rows), aim, sep="")
    for name, found in eager.calls():
        print(f"{name}: {found}; {verdict(found.ratio, 2.0)}")
    for name, found in eager.compositions():
        print(f"{name}: {found}; {verdict(found.ratio, 3.0)}")
    for name, found in eager.own_functions():
        more = 1e6 * (found.ours - found.theirs)
        print(f"{name}: {found}; {more:.2f} us more; {verdict(more, 1.0)}")
    for name, found in eager.gradient():
        print(f"{name}: {found}; {verdict(found.ratio, 1.0)}")
    for name, found in watched.run():
        print(f"{name}, against the same outside: {found}; {verdict(found.ratio, watched.AIM)}")
    seconds = watched.summary_seconds()
    print(f"summary of 100 layers: {seconds:.4f} s; {verdict(seconds, watched.SUMMARY_AIM)}")
    for name, found, aim in fit.run():
        print(
            f"fit, {name}: {found}", *([] if aim is None else [verdict(found.ratio, aim)]), sep="; "
        )
    found = fit.rows_a_second(64, 64)
    print(f"a DataLoader: {found / 1e6:.1f} M rows/s; {verdict(1e6 / found, 1.0)}")
    count = eager.frames_of_first_jit()
    print(f"first jit of a + b: {count} Python frames; {verdict(count, 305)}")
    for name, size, peak in once.arenas():
        ratio = size / peak
        print(f"arena of {name}: {size} bytes, {ratio:.3f} x the peak; {verdict(ratio, 1.1)}")
    small, large, ratio = once.linearity()
    print(
        f"trace, passes, plan and code of a chain: 1,000 nodes {small:.3f} s, 10,000 nodes "
        f"{large:.3f} s, ratio {ratio:.1f}; {verdict(ratio, 13)}"
    )
    for line in (*first_calls(), *kernels.lines()):
        print(line)
    theirs, ours, ratio = once.imports()
    print(
        f"import numpy {theirs * 1e3:.0f} ms, import miniml {ours * 1e3:.0f} ms, "
        f"ratio {ratio:.2f}; {verdict(ratio, 2.5)}"
    )
    with busy.busy():
        for line in busy.lines():
            print(line)
    if checkers.others():
        checkers.run()


if __name__ == "__main__":
    main()
