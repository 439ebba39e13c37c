"""Subscribers that stand still, as a stopped terminal does: they say what they missed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .processes import Process, broker, piped, subscriber

pytestmark = [pytest.mark.live, pytest.mark.req("N15")]
RECORDS = b"".join(b"%099999d\n" % number for number in range(300))  # 30 MB: more than all buffers and the queue


@contextmanager
def standing_still(terminal: Process) -> Iterator[threading.Thread]:
    """It is stopped in the block; from then on a thread reads what it prints."""
    reader = threading.Thread(target=terminal.out.read)
    os.kill(terminal.popen.pid, signal.SIGSTOP)
    try:
        yield reader
    finally:
        os.kill(terminal.popen.pid, signal.SIGCONT)
        reader.start()


def test_a_hold_subscriber_that_stood_still_for_too_long_ends_and_says_why(tmp_path: Path) -> None:
    with (
        broker(tmp_path, HELIOGRAPH_LIMITS__HOLD_MS_MAX="1000") as (process, url),
        subscriber(tmp_path, "plant/#", "--policy", "hold", "--url", url) as terminal,
    ):
        with standing_still(terminal) as reader:
            published = piped(tmp_path, "publish", "plant/bulk", "-", "--hold", "--url", url, data=RECORDS)
        assert published.returncode == 0
        assert terminal.popen.wait(60) == 1
        reader.join()
        assert "slow_consumer" in terminal.err.read().decode()
        dropped = next(line for line in iter(process.remark, "") if '"publications_dropped"' in line)
        assert '"why":"slow_consumer"' in dropped.replace(" ", "")


def test_a_subscriber_says_what_was_dropped_at_the_broker(tmp_path: Path) -> None:
    with broker(tmp_path) as (_, url), subscriber(tmp_path, "plant/#", "--url", url) as terminal:
        with standing_still(terminal) as reader:
            piped(tmp_path, "publish", "plant/bulk", "-", "--url", url, data=RECORDS)
        remark = terminal.remark()
        assert remark.startswith("heliograph: ")
        assert remark.endswith(" publications lost at the broker: this side is too slow")
        assert terminal.interrupt() == 0
        reader.join()
