"""The map report: a broker's map in plain values, for the CLI and drawings.

In:    routing and peering.
Out:   one JSON-ready dict.
State: none.
Not here: drawing it (maps/).
"""

from __future__ import annotations

from typing import Any

from heliograph.broker.routing.peering import LINKED, Peering
from heliograph.broker.routing.routing import Routing


def reach(routing: Routing, peering: Peering) -> dict[str, Any]:
    """The island of this broker: a name that all linked brokers share, roughly how many they are, and how many links
    that this broker dials are missing."""
    paths, me = routing.view.map.paths, routing.view.map.me
    return {
        "address": f"{me.cluster}/{me.slot}",
        "island": f"{min(paths.leader, *paths.parts) if paths.parts else paths.leader:016x}",
        "brokers": len(paths.cluster) * (1 + len(paths.parts)),
        "linking": sum(aim["state"] != LINKED for aim in peering.report()),
    }


def describe(routing: Routing, peering: Peering) -> dict[str, Any]:
    """The map as a broker sees it, in plain values."""
    view, catalogue = routing.view, routing.catalogue
    paths, me = view.map.paths, view.map.me
    aims = peering.report()
    kept = {aim["broker"]: aim["address"] for aim in aims}
    return {
        "broker": me.name,
        "network": routing.network_name,
        "id": f"{me.broker:016x}",
        "cluster": me.cluster,
        "slot": me.slot,
        "epoch": view.epoch,
        "leader": view.name_of(routing.advertising.leadership.leader),
        "aims": aims,
        "neighbours": [
            {
                "broker": neighbour.name,
                "address": kept.get(neighbour.name, neighbour.link.peer.address),
                "link": neighbour.link.id,
                "cluster": neighbour.cluster,
                "cost": neighbour.cost,
                "round_trip_us": neighbour.round_trip_ns // 1_000,
                "suspected": neighbour.suspected,
                "dialled": neighbour.dialled,
                "unconfirmed_bytes": neighbour.sent_bytes,
                "given_up": neighbour.given_up,
            }
            for neighbour in view.neighbours.values()
        ],
        "members": [
            {
                "broker": member.name,
                "slot": member.slot,
                "cost": paths.costs.get(broker),
                "via": view.name_of(paths.steps[broker]) if broker in paths.steps else None,
                "links": {view.name_of(other): cost for other, cost in member.links.items()},
                "interests": catalogue.count(broker, False),
                "listening": catalogue.count_listening(broker, False),
            }
            for broker, member in view.map.members.items()
        ],
        "gateways": [
            {
                "broker": gateway.name,
                "cluster": gateway.cluster,
                "leader": view.name_of(gateway.leader),
                "cost": paths.costs.get(broker),
                "via": view.name_of(paths.steps[broker]) if broker in paths.steps else None,
                "outside": {view.name_of(other): cost for other, cost in gateway.outside.items()},
                "inside": {view.name_of(other): cost for other, cost in gateway.inside.items()},
            }
            for broker, gateway in view.map.gateways.items()
        ],
        "clusters": [
            {
                "leader": view.name_of(leader),
                "cluster": view.map.gateways[gateway].cluster,
                "nearest_gateway": view.name_of(gateway),
                "cost": paths.costs[gateway],
                "interests": catalogue.count(leader, True),
                "listening": catalogue.count_listening(leader, True),
            }
            for leader, gateway in paths.parts.items()
        ],
        "out_of_reach": [view.name_of(broker) for broker in view.map.out_of_reach()],
        "remembered": [f"{what} {view.name_of(broker)}" for what, broker in routing.memory.lost],
        **routing.report(),
    }
