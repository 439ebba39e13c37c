"""A trace as text: the route that a publication would take, and its receivers.

In:    the answer of a broker to a trace.
Out:   lines of text.
State: none.
Not here: tracing (broker/tracing.py), asking a broker (cli/network.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heliograph.maps.cells import cell


def as_text(answer: Mapping[str, Any]) -> Iterator[str]:
    """One line per broker that would deliver it, followed by its receivers."""
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
        for condition in row.get("conditions", ()):
            yield f"    {_asked(condition)}"
    for interest in answer.get("interests", ()):
        if interest["where"]:
            yield f"  {_interest(interest)}"
    if not receivers:
        yield "no client would get it"
    if not answer["complete"]:
        yield "not every broker that may be concerned has answered"


def _asked(condition: Mapping[str, Any]) -> str:
    """Whether a subscription with a condition matches."""
    who = f"{cell(condition['entity'])} on link {condition['link']}, subscription {condition['number']}"
    return f"{'fits' if condition['matches'] else 'not for'} {who}: {_condition(condition)}"


def _interest(interest: Mapping[str, Any]) -> str:
    whose = f"{'the cluster of ' if interest['cluster'] else ''}{cell(interest['of'])}"
    return f"{'carried by' if interest['matches'] else 'not by'} the interest of {whose}: {_condition(interest)}"


def _condition(asked: Mapping[str, Any]) -> str:
    text = f"{cell(asked['filter'])} where {cell(asked['where'])}"
    return text if asked["matches"] else f"{text}; failed: {cell(asked['failed'])}"


def _receiver(link: Mapping[str, Any]) -> str:
    name = f" ({cell(link['name'])})" if link["name"] else ""
    numbers = link["numbers"]
    subscriptions = f"subscription{'' if len(numbers) == 1 else 's'} {', '.join(str(number) for number in numbers)}"
    shared = ", shared" if link.get("shared") else ""
    return f"to {cell(link['entity'])}{name} on link {link['link']}, {subscriptions}{shared}"
