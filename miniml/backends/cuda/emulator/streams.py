"""Streams, events and graphs of emucupy: queues of launches, and launches kept to be repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ..sim.settings import current

Launch = Callable[[], None]


class CUDARuntimeError(RuntimeError):
    """cupy's exception for errors of the CUDA runtime; status is the error's number."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def _unsupported(what: str) -> CUDARuntimeError:
    return CUDARuntimeError(
        900,
        "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing: "
        + what,
    )


class Graph:
    """Launches in their order; cupy's are made by Stream.end_capture, too."""

    def __init__(self, launches: list[Launch]):
        self._launches = launches

    def launch(self, stream: Stream | None = None) -> None:
        """Queues all of them; in the simulator they run at once unless launches are deferred."""
        (stream or current_stream())._do(self._run)

    def _run(self) -> None:
        for launch in self._launches:
            launch()


class Stream:
    """A queue of launches. They run at once, unless the settings say `deferred`.

    Between begin_capture and end_capture they are recorded and do not run. An operation that a
    capture forbids raises and invalidates the capture. Memory cannot be allocated meanwhile, which
    is stricter than CUDA: cupy's pool would hand out memory, and reuse it while the graph still
    uses it.
    """

    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False):
        self._queue: list[Launch] = []
        self._tokens: list[Any] = []
        self._kept: list[Launch] | None = None
        self._spoilt = False
        self.ptr = 0 if null else id(self)

    def _do(self, launch: Launch) -> None:
        """Runs a launch, now or later."""
        self._forbid("a launch of another graph")
        if current().deferred:
            self._queue.append(launch)
        else:
            launch()

    def _keep(self, launch: Launch) -> None:
        assert self._kept is not None
        self._kept.append(launch)

    def begin_capture(self, mode: int | None = None) -> None:
        """From now on launches are kept; the default stream has no capture."""
        if not self.ptr:
            raise _unsupported("capture of the default stream")
        if self._kept is not None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is being captured")
        self._kept, self._spoilt = [], False

    def end_capture(self) -> Graph:
        """The launches since begin_capture, as a graph; an error if one of them was forbidden."""
        if self._kept is None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is not being captured")
        kept, self._kept = self._kept, None
        if self._spoilt:
            raise CUDARuntimeError(
                901,
                "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error "
                "during capture",
            )
        return Graph(kept)

    def is_capturing(self) -> bool:
        """True between begin_capture and end_capture."""
        return self._kept is not None

    def _forbid(self, what: str) -> None:
        """Raises while the stream is captured; the capture is spoilt then."""
        if self._kept is not None:
            self._spoilt = True
            raise _unsupported(what)

    def synchronize(self) -> None:
        """Runs the queue; its errors surface here, and launches after a fault never run."""
        self._forbid("waiting for the stream")
        try:
            while self._queue:
                self._queue.pop(0)()
        finally:
            self._queue.clear()

    def __enter__(self) -> Stream:
        self._tokens.append(_stream.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _stream.reset(self._tokens.pop())

    def record(self, event: Event | None = None) -> Event:
        """Marks this point of the stream in an event."""
        marked = event or Event()
        marked.record(self)
        return marked

    def wait_event(self, event: Event) -> None:
        """Makes later launches wait for an event of another stream."""
        event.synchronize()


class Event:
    """A point in a stream, with its time."""

    def __init__(self, disable_timing: bool = False):
        self._stream: Stream | None = None
        self.time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Takes the time when all earlier launches have run."""
        self._stream = stream or current_stream()
        self.synchronize()
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Waits for the point."""
        if self._stream is not None:
            self._stream.synchronize()


def elapsed(start: Event, end: Event) -> float:
    """Milliseconds between two events."""
    return (end.time - start.time) * 1e3


Stream.null = Stream(null=True)
_stream: ContextVar[Stream] = ContextVar("miniml_emucupy_stream", default=Stream.null)
current_stream = _stream.get
