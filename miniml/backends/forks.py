"""Locks across a fork: in the child they are free, and the data they guard are consistent."""

from __future__ import annotations

import os
import threading


def lock_of_process() -> threading.RLock:
    """A lock that a fork waits for, so that it is never left locked in the child."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
