"""Reports: what a session says about itself, as plain values.

In:    the session's rooms and its conversation, read only.
Out:   parts of the answers to ``Session.report``.
State: none.
Not here: what the counters mean (the rooms that count).
"""

from __future__ import annotations

from typing import Any

from heliograph.client.conversation import Conversation
from heliograph.client.rooms import Rooms
from heliograph.client.subscriptions import Wish
from heliograph.wire.bodies import Welcome


def describe_link(conversation: Conversation, welcome: Welcome | None) -> dict[str, Any]:
    """The present link and the broker at its end; ``links`` counts all since the beginning."""
    line = conversation.line
    return {
        "target": None if line is None else str(line.target),
        "broker": None if welcome is None else welcome.broker,
        "entity": None if welcome is None else welcome.entity,
        "roles": [] if welcome is None else list(welcome.roles),
        "links": conversation.links,
        "held": line is not None and line.held,
    }


def describe_rooms(rooms: Rooms, lost_at_broker: int) -> dict[str, Any]:
    """What went out, what came in, and what was lost on the way."""
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
        **rooms.refusals.report(),
    }


def describe_wish(wish: Wish) -> dict[str, Any]:
    """One subscription and its inbox."""
    inbox = wish.inbox
    return {
        "number": wish.number,
        "filter": wish.filter,
        "policy": wish.policy.value,
        "echo": wish.echo,
        "stage": wish.stage.name.lower(),
        "received": inbox.received,
        "waiting": len(inbox),
        "lost": inbox.lost,
    }
