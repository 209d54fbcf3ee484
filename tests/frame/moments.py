"""Signals at chosen moments of a call: a test tries any, and again the one that failed."""

import os
import signal
import sys


class Moments:
    """The moments at which Python hears signals: when a function begins, and after a call of C.

    A context: inside it, two signals have handlers that raise.
    """

    def __enter__(self):
        numbers = (signal.SIGUSR1, signal.SIGALRM)
        self.before = {number: signal.signal(number, self._raises) for number in numbers}
        # A handler may run inside a finalizer, where Python reports what it raises and goes on.
        self.hook, sys.unraisablehook = sys.unraisablehook, list
        return self

    def __exit__(self, *error):
        sys.unraisablehook = self.hook
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def count(self, fn):
        """The code that runs at each moment of fn()."""
        self.codes = []
        sys.setprofile(self._note)
        fn()
        sys.setprofile(None)
        return self.codes

    def during(self, fn, at, error, again=0.0):
        """fn(), with a signal at that moment, whose handler raises `error`; and a second one, so
        many seconds later. The name of what was raised; "" where fn() came to its end."""
        self.error, self.again, self.left = error, again, at
        # A frame that Python makes for the function may run finalizers first, in one of which the
        # function is taken off; CPython 3.11 calls it all the same, without owning it.
        watch = self._watch
        limit = signal.setitimer(signal.ITIMER_REAL, 0)  # of the test's time, set again below
        try:
            try:
                sys.setprofile(watch)
                fn()
            finally:
                sys.setprofile(None)
                signal.setitimer(signal.ITIMER_REAL, 0)
        except error:
            return error.__name__
        finally:
            signal.setitimer(signal.ITIMER_REAL, *limit)
        return ""

    def _note(self, frame, event, arg):
        if event in ("call", "c_return"):
            self.codes.append(frame.f_code)

    def _watch(self, frame, event, arg):
        if event in ("call", "c_return"):
            self.left -= 1
            if self.left == -1:
                sys.setprofile(None)
                os.kill(os.getpid(), signal.SIGUSR1)

    def _raises(self, number, frame):
        if number == signal.SIGUSR1 and self.again:
            signal.setitimer(signal.ITIMER_REAL, self.again)
        raise self.error


def drawn(draw, codes):
    """A moment: half of them of all that there are, half of those of one function."""
    if draw.integers(2):
        return int(draw.integers(len(codes)))
    functions = sorted({(c.co_filename, c.co_firstlineno, c.co_name) for c in codes})
    one = functions[draw.integers(len(functions))]
    own = [i for i, c in enumerate(codes) if (c.co_filename, c.co_firstlineno, c.co_name) == one]
    return int(draw.choice(own))
