"""A program under check: it publishes reliably through the public client, and writes down what it was told, and when.

In:    on the command line, as JSON: addresses, topics by lane, a file that says when to end, whether it waits.
Out:   a line per publication (`published`, `handed`) and per flush (`flushed`), with the outcome.
State: what is under way.
Not here: what is right (../absent_oracle.py). This folder alone imports heliograph, and nothing imports this folder.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import heliograph

UNDER_WAY_MAX = 20  # publications of a lane that wait for their store
PAUSE_S = 0.02
FLUSH_EVERY_S = 0.5
PAYLOAD_BYTES = 200


class Writer:
    """Publishes, and writes down what became of it."""

    def __init__(self, client: heliograph.Client, given: dict[str, Any]) -> None:
        self._client = client
        self._given = given
        self._until = Path(given["until"])
        self._numbers = dict.fromkeys(given["lanes"], 0)
        self._notes = Path(given["notes"]).open("w", buffering=1)  # noqa: SIM115 (it lives as long as the program)

    @property
    def is_over(self) -> bool:
        return self._until.exists()

    def note(self, kind: str, **fields: Any) -> None:
        self._notes.write(json.dumps({"kind": kind, **fields}) + "\n")

    async def _told(self, kind: str, call: Awaitable[None], **fields: Any) -> None:
        begin = time.monotonic()
        outcome = "ok"
        try:
            await call
        except heliograph.HeliographError as error:
            reason = getattr(error, "reason", None)
            outcome = reason.word if reason is not None else repr(error)
        self.note(kind, **fields, begin=begin, end=time.monotonic(), outcome=outcome)

    async def publish(self, lane: str, number: int, *, wait: bool) -> None:
        topics = self._given["lanes"][lane]
        payload = f"{self._given['name']} {lane} {number}".ljust(PAYLOAD_BYTES)
        call = self._client.publish(topics[number % len(topics)], payload, reliable=True, wait=wait)
        await self._told("published" if wait else "handed", call, lane=lane, number=number)

    def next(self, lane: str) -> int:
        self._numbers[lane] += 1
        return self._numbers[lane]

    async def wait_in(self, lane: str) -> None:
        """Publish on one lane; each publication waits until it is stored."""
        under_way: set[asyncio.Task[None]] = set()
        while not self.is_over:
            under_way.add(asyncio.create_task(self.publish(lane, self.next(lane), wait=True)))
            if len(under_way) >= UNDER_WAY_MAX:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(PAUSE_S)
        await asyncio.gather(*under_way)

    async def hand_over(self) -> None:
        """Publish on all lanes in turn without waiting."""
        while not self.is_over:
            for lane in self._numbers:
                await self.publish(lane, self.next(lane), wait=False)
            await asyncio.sleep(PAUSE_S)

    async def flush(self) -> None:
        while not self.is_over:
            await asyncio.sleep(FLUSH_EVERY_S)
            await self._told("flushed", self._client.flush())


async def main(given: dict[str, Any]) -> None:
    options = {"timeout": 30.0, "request_timeout": given["request_timeout"]}
    async with heliograph.connect(given["addresses"], **options) as client:
        writer = Writer(client, given)
        for lane in given["lanes"]:
            await writer.publish(lane, writer.next(lane), wait=True)  # from now on it knows the store
        writer.note("warm")
        if given["waits"]:
            await asyncio.gather(*(writer.wait_in(lane) for lane in given["lanes"]))
        else:
            await asyncio.gather(writer.hand_over(), writer.flush())
            await writer._told("flushed", client.flush())
            await writer._told("flushed", client.flush())  # nothing is left that only the next one would tell
        await client.close()


asyncio.run(main(json.loads(sys.argv[1])))
