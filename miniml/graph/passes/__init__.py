"""Passes: functions from graph to graph that preserve its results up to rounding."""

from .pipeline import PIPELINE as PIPELINE
from .pipeline import Pass as Pass
from .pipeline import add_stage as add_stage
from .pipeline import pipeline as pipeline
from .pipeline import register_pass as register_pass
from .pipeline import register_rule as register_rule
from .pipeline import run_passes as run_passes
from .pipeline import run_stage as run_stage
from .pipeline import schedule_pass as schedule_pass
from .pipeline import unregister_pass as unregister_pass
