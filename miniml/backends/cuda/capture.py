"""Launches recorded once as a CUDA graph, which one call then repeats."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from ...errors import CaptureError

_recording: ContextVar[bool] = ContextVar("miniml_cuda_recording", default=False)


def recorded(module: Any, launches: Callable[[], object]) -> Callable[[], None]:
    """A function that repeats the launches of `launches` on the current stream, with the present
    arguments; recording runs nothing.

    CaptureError, or the module's own error, when `launches` waits, allocates or copies from or to
    the host; the module is then as before.
    """
    stream = module.cuda.Stream(non_blocking=True)  # the default stream has no capture
    with stream:
        stream.begin_capture()
        token = _recording.set(True)
        try:
            launches()
        except BaseException:
            with suppress(Exception):
                stream.end_capture()
            raise
        finally:
            _recording.reset(token)
        graph = stream.end_capture()
    launch: Callable[[], None] = graph.launch
    return launch


def refuse_recording(what: str) -> None:
    """CaptureError while a graph is recorded.

    CUDA does not refuse everything: memory of cupy's pool, and copies from the host, would be
    recorded, and would have changed when the graph runs again.
    """
    if _recording.get():
        raise CaptureError(f"a CUDA graph only launches; got {what} while one was recorded")
