"""A program under check: a subscriber that uses the public client and reads slowly for a while.

In:    on the command line, as JSON: a port, a filter and a policy, when after the first publication it is slow
       and how, whose ends it waits for.
Out:   a line per publication (`got`), one if it was told of its end (`told`), one with what it was told was lost.
State: one subscription.
Not here: the same with the independent client (../slow_reader.py), what is right (../slow_oracle.py).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import IO, Any

import heliograph
from tests.independent.slow_workload import label_of

SECONDS = 60.0  # without a publication


async def main(given: dict[str, Any]) -> None:
    address = f"heliograph://127.0.0.1:{given['port']}"
    with Path(given["notes"]).open("w", buffering=1) as notes:
        async with heliograph.connect(address, name=given["name"], timeout=30.0, request_timeout=30.0) as client:
            options = {"policy": given["policy"], "wide": True, "inbox_bytes_max": given["inbox_bytes_max"]}
            subscription = await client.subscribe(given["filter"], **options)
            note(notes, "ready")
            try:
                await read(subscription, notes, given)
                note(notes, "finished")
            except heliograph.RefusedError as error:
                note(notes, "told", reason=error.reason.word)
            lost = client.report()["lost"]["broker"] + subscription.lost
            note(notes, "lost", lost=lost)
            await client.close()


def note(notes: IO[str], kind: str, **fields: Any) -> None:
    notes.write(json.dumps({"kind": kind, **fields}) + "\n")


async def read(subscription: heliograph.Subscription, notes: IO[str], given: dict[str, Any]) -> None:
    """Until the last publication of every publisher has come."""
    after, until, pause = given["slow"]
    begin = 0.0
    awaited = set(given["publishers"])
    while awaited:
        publication = await subscription.next(timeout=SECONDS)
        publisher, number, is_last = label_of(publication.payload)
        note(notes, "got", publisher=publisher, number=number)
        if is_last:
            awaited.discard(publisher)
        begin = begin or time.monotonic()
        if after <= time.monotonic() - begin < until:
            await asyncio.sleep(pause)


asyncio.run(main(json.loads(sys.argv[1])))
