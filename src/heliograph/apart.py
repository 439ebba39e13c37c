"""Apart: a call in a thread of its own, for libraries that keep memory as long as a thread runs.

In:    a call that needs nothing of the thread it is made in.
Out:   its result or its exception, once the thread has ended: the caller waits, so nothing runs at the same time.
State: none.
Not here: slow work beside a machine (live/jobs.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def run_apart(call: Callable[[], T]) -> T:
    """Run a call in a new thread, which takes 0.1 to 0.2 ms; RuntimeError if the system has no thread left."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # raised again in the waiting caller
            outcome.set_exception(error)

    thread = Thread(target=run, name="heliograph-apart", daemon=True)
    thread.start()
    thread.join()
    return outcome.result()
