"""A program of its own: a subscriber, written from docs/reference/protocol.md, that reads slowly for a while.

In:    on the command line, as JSON: a port, a filter and a policy, when after the first publication it is slow
       and how, whose ends it waits for.
Out:   a line per publication (`got`, with what the broker says was lost), one if it was told of its end (`told`).
State: one link.
Not here: the same with the public client (programs/slow_subscriber.py), what is right (slow_oracle.py).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

from tests.independent.slow_workload import label_of
from tests.wire.stdlib_client import EndedError, StdlibClient

SECONDS = 60.0  # without a delivery


def main(given: dict[str, Any]) -> None:
    secret = os.urandom(32)
    link = StdlibClient("127.0.0.1", given["port"], secret=secret, seconds=SECONDS)
    link.hello(name=given["name"], keep_alive_ms=120_000)
    link.subscribe(1, given["filter"], policy=given["policy"], wide=True)
    with Path(given["notes"]).open("w", buffering=1) as notes:
        note(notes, "ready")
        try:
            read(link, notes, given)
            note(notes, "finished")
        except EndedError as end:
            note(notes, "told", reason=end.reason or welcomed(given["port"], secret))


def note(notes: IO[str], kind: str, **fields: Any) -> None:
    notes.write(json.dumps({"kind": kind, **fields}) + "\n")


def read(link: StdlibClient, notes: IO[str], given: dict[str, Any]) -> None:
    """Until the last publication of every publisher has come."""
    after, until, pause = given["slow"]
    begin = 0.0
    awaited = set(given["publishers"])
    while awaited:
        event = link.event()
        publisher, number, is_last = label_of(event.frame.payload)
        note(notes, "got", publisher=publisher, number=number, lost=event.lost)
        if is_last:
            awaited.discard(publisher)
        begin = begin or time.monotonic()
        if after <= time.monotonic() - begin < until:
            time.sleep(pause)


def welcomed(port: int, secret: bytes) -> str:
    """The broker ended the link without a word: what it says when we are back."""
    link = StdlibClient("127.0.0.1", port, secret=secret, seconds=SECONDS)
    return "slow_consumer" if link.hello().get("slow") else ""


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
