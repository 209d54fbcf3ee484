"""Determinants."""

from __future__ import annotations

from ... import ops
from ..operators import register_all

register_all((11, None), {"Det": ops.det})
