"""Standard input as lines: each of them, however it is cut into reads."""

from __future__ import annotations

import asyncio
import os

import pytest

from heliograph.cli.standard_input import LINE_BYTES_MAX, read_lines, read_whole
from heliograph.errors import UsageError
from heliograph.wire.limits import PAYLOAD_BYTES_MAX

pytestmark = pytest.mark.req("O1")


async def lines_of(*writes: bytes) -> list[bytes]:
    """The lines of a pipe; each write is read before the next one comes."""
    reading, writing = os.pipe()
    found: list[bytes] = []
    try:
        rest = list(writes)
        os.write(writing, rest.pop(0))
        if not rest:
            os.close(writing)
        async for lines in read_lines(reading):
            found += lines
            if rest:
                os.write(writing, rest.pop(0))
                if not rest:
                    os.close(writing)
    finally:
        os.close(reading)
    return found


@pytest.mark.parametrize(
    ("writes", "lines"),
    [
        ((b"one\ntwo\n",), [b"one", b"two"]),
        ((b"one\r\ntwo\r\n",), [b"one", b"two"]),
        ((b"one\nlast",), [b"one", b"last"]),
        ((b"one\ntw", b"o\nlast"), [b"one", b"two", b"last"]),
        ((b"one\n\n",), [b"one", b""]),
    ],
)
def test_every_line_comes_once_and_the_last_one_needs_no_end(writes: tuple[bytes, ...], lines: list[bytes]) -> None:
    assert asyncio.run(lines_of(*writes)) == lines


def test_input_that_is_longer_than_any_payload_is_refused() -> None:
    async def read(path: str, whole: bool) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            if whole:
                await read_whole(handle)
            else:
                async for _ in read_lines(handle):
                    pass
        finally:
            os.close(handle)

    with pytest.raises(UsageError, match=f"more than {LINE_BYTES_MAX} bytes"):
        asyncio.run(read("/dev/zero", whole=False))
    with pytest.raises(UsageError, match=f"more than {PAYLOAD_BYTES_MAX} bytes"):
        asyncio.run(read("/dev/zero", whole=True))
