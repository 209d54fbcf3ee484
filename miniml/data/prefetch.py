"""Prefetching: a thread makes what is iterated over, some items ahead of who takes them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TypeVar

T = TypeVar("T")
Made = Callable[[], T]  # gives the item, or raises what was raised instead of it


def prefetched(items: Iterator[T], ahead: int) -> Generator[T, None, None]:
    """The items in their order, made by a thread, at most `ahead` of them before they are taken.

    What the items raise is raised in their place. The thread runs in a copy of the context, is
    started by the first `next`, and has ended when this iterator is exhausted, closed or dropped:
    an item that is being made is waited for.
    """
    made: SimpleQueue[Made[T]] = SimpleQueue()
    room, stopped = Semaphore(ahead), list[bool]()

    def make() -> None:
        made_one = True
        while made_one and room.acquire() and not stopped:
            made_one = _put(items, made)

    thread = Thread(target=copy_context().run, args=(make,), name="miniml prefetch", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = made.get()()
            except StopIteration:
                return
            room.release()
            yield item
    finally:
        stopped.append(True)
        room.release()
        thread.join()


def _put(items: Iterator[T], made: SimpleQueue[Made[T]]) -> bool:
    """Make one item; False if there is none."""
    try:
        item = next(items)
    except BaseException as error:
        made.put(_raiser(error))
        return False
    made.put(lambda: item)
    return True


def _raiser(error: BaseException) -> Made[T]:
    def fail() -> T:
        raise error

    return fail
