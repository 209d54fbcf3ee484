"""Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Interrupts:
    """In the block Ctrl-C is noted, in `noted`, and a second one raises KeyboardInterrupt at once.
    A handler that somebody else has set stays."""

    noted = False

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        self._own = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._own:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._own:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: Any) -> None:
        self.noted = True
        signal.signal(number, signal.default_int_handler)
