"""The tables of one-time requests as text: the three of the paper.

In:    the requests that a broker knows.
Out:   lines of text, by table: what is listed, cached, and waited for.
State: none.
Not here: the requests (forwarding.py).
Paper: [resources] §5: SrdSubList, ResourceCacheMap, SubWaitingListMap.
"""

from __future__ import annotations

from heliograph.discovery.resources.forwarding import KnownRequest, RequestForwarding


def tables_of(forwarding: RequestForwarding) -> dict[str, list[str]]:
    """What is listed, cached, and waited for."""
    return {
        "listed": [_shown(each) for each in forwarding.listed],
        "cached": [
            f"{_shown(each)}({', '.join(sorted(found.name for found in each.cache.values()))})"
            for each in forwarding.known.values()
            if each.cache
        ],
        "waiting": [
            f"{_shown(each)}({', '.join(_shown(other) for other in each.waiting.values())})"
            for each in forwarding.known.values()
            if each.waiting
        ],
    }


def _shown(known: KnownRequest) -> str:
    return known.condition.text
