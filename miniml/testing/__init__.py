"""Tools for testing primitives, including your own."""

from .calls import OpInfo as OpInfo
from .calls import Refusal as Refusal
from .calls import Sample as Sample
from .gradchecks.run import gradcheck as gradcheck
from .gradchecks.run import gradcheck_vjp as gradcheck_vjp
from .opchecks import OpCheckError as OpCheckError
from .opchecks import assert_op as assert_op
from .opchecks import opcheck as opcheck
from .report import GradientError as GradientError
from .report import GradReport as GradReport

__all__ = [
    "GradReport", "GradientError", "OpCheckError", "OpInfo", "Refusal", "Sample",
    "assert_op", "gradcheck", "gradcheck_vjp", "opcheck",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
