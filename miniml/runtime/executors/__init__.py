"""Executors of steps: one Python function, or a CUDA graph of the launches of that function."""

from __future__ import annotations
