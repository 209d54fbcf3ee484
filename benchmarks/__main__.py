"""`python -m benchmarks`: run every measurement and print its ratio beside the one aimed at."""

from benchmarks import train_step
from benchmarks.measure import machine

if __name__ == "__main__":
    print(machine())
    for name, ratio, target in train_step.run():
        print(f"{name}: {ratio}  aim {target}  {'met' if ratio.ratio <= target else 'MISSED'}")
