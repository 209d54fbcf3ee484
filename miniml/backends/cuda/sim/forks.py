"""Locks across a fork: the child gets them free, and what they guard whole."""

from __future__ import annotations

import os
import threading


def lock_of_process() -> threading.RLock:
    """A lock that a fork waits for, so that no thread holds it in the child for ever."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
