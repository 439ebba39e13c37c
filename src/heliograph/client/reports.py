"""Reports: what a session says about itself, as plain values.

In:    the session's rooms and its conversation, read only.
Out:   parts of the answers to ``Session.report``.
State: none.
Not here: what the counters mean (the rooms that count).
"""

from __future__ import annotations

from typing import Any

from heliograph.client.conversation import Conversation
from heliograph.client.line import Line
from heliograph.client.rooms import Rooms
from heliograph.client.subscriptions import Wish
from heliograph.wire.bodies import Welcome


def describe_link(conversation: Conversation, welcome: Welcome | None) -> dict[str, Any]:
    """The present link and the broker at its end; ``links`` and ``roamed`` count all since the beginning."""
    line, roaming = conversation.line, conversation.roaming
    return {
        "target": None if line is None else str(line.target),
        "broker": None if welcome is None else welcome.broker,
        "entity": None if welcome is None else welcome.entity,
        "roles": [] if welcome is None else list(welcome.roles),
        "links": conversation.links,
        "held": line is not None and line.held,
        "roaming": roaming.is_active,
        "roamed": roaming.count,
    }


def describe_rooms(rooms: Rooms, lost_at_broker: int) -> dict[str, Any]:
    """What went out, what came in, and what was lost on the way."""
    directed = rooms.subscriptions.directed
    return {
        "published": rooms.outgoing.assigned,
        "confirmed": rooms.outgoing.confirmed,
        "outgoing_bytes": rooms.outgoing.bytes,
        "received": rooms.reader.received,
        "duplicates": rooms.reader.duplicates,
        "discarded": rooms.reader.discarded,
        "lost": {**rooms.losses.counts, "broker": lost_at_broker},
        "subscriptions": len(rooms.subscriptions),
        "requests": len(rooms.requests),
        "inquiries": len(rooms.inquiries),
        "directed": {"received": directed.received, "waiting": len(directed), "lost": directed.lost},
        **rooms.refusals.report(),
    }


def describe_wish(wish: Wish, line: Line | None) -> dict[str, Any]:
    """One subscription, how far it is on the present line, and its inbox."""
    inbox = wish.inbox
    if wish.ending:
        stage = "ending"
    elif line is None or wish.number not in line.asked:
        stage = "wanted"
    else:
        stage = "in_force" if wish.number in line.in_force else "asked"
    return {
        "number": wish.number,
        "filter": wish.filter,
        "policy": wish.policy.value,
        "echo": wish.echo,
        "group": wish.group,
        "language": wish.language,
        "where": wish.where,
        "stage": stage,
        "received": inbox.received,
        "waiting": len(inbox),
        "lost": inbox.lost,
    }
