"""Fusion: which nodes are computed in one pass over their elements, and the loops that do it."""
