"""Passes: functions from graph to graph that preserve its results up to rounding."""

from .pipeline import *  # noqa: F403
