"""Standard input as lines, for use with an event loop.

In:    a file descriptor: a pipe, a terminal or a file.
Out:   batches of lines, as they arrive.
State: one reading thread; it waits while the program is busy with earlier input.
Not here: what the lines mean (payload.py).

The thread is a daemon that reads the descriptor itself: a thread that waits for a terminal inside Python's buffered
reader cannot be abandoned at exit, and asyncio cannot wait for a plain file at all.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from threading import Thread

from heliograph.errors import UsageError
from heliograph.wire.limits import PAYLOAD_BYTES_MAX

READ_BYTES = 1 << 16
LINE_BYTES_MAX = 2 * PAYLOAD_BYTES_MAX  # a whole payload as base64, with its topic and headers


def standard_input() -> int:
    """Its descriptor; UsageError if whoever started us has closed it."""
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    return sys.stdin.fileno()


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends; a batch has the lines that one read completed. The last line needs no end."""
    rest = b""
    async for data in _chunks(descriptor):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX or any(len(line) > LINE_BYTES_MAX for line in lines):
            raise UsageError(f"a line of standard input has more than {LINE_BYTES_MAX} bytes")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


async def read_whole(descriptor: int) -> bytes:
    """All input, as one payload."""
    parts: list[bytes] = []
    size = 0
    async for data in _chunks(descriptor):
        parts.append(data)
        size += len(data)
        if size > PAYLOAD_BYTES_MAX:
            raise UsageError(
                f"standard input has more than {PAYLOAD_BYTES_MAX} bytes, the most that a payload may have"
            )
    return b"".join(parts)


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while True:
        arrived: asyncio.Future[bytes] = loop.create_future()
        Thread(target=_read_one, args=(descriptor, loop, arrived), daemon=True).start()
        data = await arrived
        if not data:
            return
        yield data


def _read_one(descriptor: int, loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[bytes]) -> None:
    result: bytes | OSError
    try:
        result = os.read(descriptor, READ_BYTES)
    except OSError as error:
        result = error
    try:
        loop.call_soon_threadsafe(_settle, arrived, result)
    except RuntimeError:
        pass  # the loop has ended, so no reader waits


def _settle(arrived: asyncio.Future[bytes], result: bytes | OSError) -> None:
    if arrived.done():
        return  # abandoned
    if isinstance(result, OSError):
        arrived.set_exception(result)
    else:
        arrived.set_result(result)
