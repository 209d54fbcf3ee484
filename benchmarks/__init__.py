"""Measurements: ratios taken in one run, printed with the machine and the versions."""
