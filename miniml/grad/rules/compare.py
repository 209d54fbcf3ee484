"""Gradients through selection; comparisons and logic have none."""
