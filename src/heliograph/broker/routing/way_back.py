"""The way back: the next hop of an answer to something that came in a parcel.

In:    the broker that the answer is for, and the brokers that the parcel passed.
Out:   the neighbour to send it to, and the brokers that are left.
State: none.
Not here: what is answered (changeover.py, broker/far_consumers.py).

A parcel's own path is known even across clusters, whose members are not in our map.
"""

from __future__ import annotations

from heliograph.broker.routing.ports import Neighbour
from heliograph.broker.routing.view import View


def way_back(view: View, broker: int, passed: list[int]) -> tuple[Neighbour | None, list[int]]:
    """The neighbour that leads to this broker: itself, the last that was passed, or the next one on the path to it.

    None if none of them is there, and no path is known.
    """
    if broker in view.neighbours:
        return view.neighbours[broker], passed[:-1]
    if passed and passed[-1] in view.neighbours:
        return view.neighbours[passed[-1]], passed[:-1]
    return view.neighbours.get(view.paths.steps.get(broker, 0)), []
