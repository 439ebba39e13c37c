"""A trace for people: the way a publication would go, and who would get it.

In:    the answer of a broker to a trace.
Out:   lines of text.
State: none.
Not here: tracing (broker/tracing.py), asking (network.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heliograph.cli.tables import cell


def as_text(answer: Mapping[str, Any]) -> Iterator[str]:
    """One line per broker on whose links it would be delivered, and below it who is there."""
    brokers = answer["brokers"]
    receivers = sum(len(row["links"]) for row in brokers)
    yield f"{cell(answer['topic'])} enters at {cell(answer['entry'])}"
    for row in brokers:
        way = " → ".join(cell(step) for step in row["path"])
        yield f"  {way}  (cluster {cell(row['cluster'])})"
        for link in row["links"]:
            yield f"    {_receiver(link)}"
        if row["groups"]:
            yield f"    {row['groups']} shared: each publication goes to one member of each group, the nearest first"
    if not receivers:
        yield "nobody would get it"
    if not answer["complete"]:
        yield "not every broker that may be concerned has answered"


def _receiver(link: Mapping[str, Any]) -> str:
    name = f" ({cell(link['name'])})" if link["name"] else ""
    numbers = link["numbers"]
    subscriptions = f"subscription{'' if len(numbers) == 1 else 's'} {', '.join(str(number) for number in numbers)}"
    shared = ", shared" if link.get("shared") else ""
    return f"to {cell(link['entity'])}{name} on link {link['link']}, {subscriptions}{shared}"
