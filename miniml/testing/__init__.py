"""Tools for testing primitives, one's own included."""

from .gradcheck import gradcheck as gradcheck
from .gradcheck import gradcheck_vjp as gradcheck_vjp
from .gradreport import GradientError as GradientError
from .gradreport import GradReport as GradReport
from .opinfo import OpInfo as OpInfo
from .opinfo import Refusal as Refusal
from .opinfo import Sample as Sample

__all__ = [
    "GradReport", "GradientError", "OpInfo", "Refusal", "Sample", "gradcheck", "gradcheck_vjp",
]  # fmt: skip
