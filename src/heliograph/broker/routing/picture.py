"""The picture: a broker's map in plain values, for reports, the CLI and drawings.

In:    the network room.
Out:   one JSON-ready dict.
State: none.
Not here: drawing it (cli/).
"""

from __future__ import annotations

from typing import Any

from heliograph.broker.routing.network import Network
from heliograph.broker.routing.peering import LINKED


def reach(network: Network) -> dict[str, Any]:
    """Which island this broker is on: a name that all who are linked share, how many they are, about, and how many
    links it dials that are not there."""
    paths, me = network.map.paths, network.map.me
    return {
        "address": f"{me.cluster}/{me.slot}",
        "island": f"{min(paths.speaker, *paths.parts) if paths.parts else paths.speaker:016x}",
        "brokers": len(paths.cluster) * (1 + len(paths.parts)),
        "linking": sum(aim["state"] != LINKED for aim in network.peering.report()),
    }


def describe(network: Network) -> dict[str, Any]:
    """The map as a broker sees it, in plain values."""
    paths = network.map.paths
    me = network.map.me
    aims = network.peering.report()
    kept = {aim["broker"]: aim["address"] for aim in aims}
    return {
        "broker": me.name,
        "network": network.network_name,
        "id": f"{me.broker:016x}",
        "cluster": me.cluster,
        "slot": me.slot,
        "epoch": network.epoch,
        "speaker": network.name_of(network.speaker.broker),
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
            for neighbour in network.neighbours.values()
        ],
        "members": [
            {
                "broker": member.name,
                "slot": member.slot,
                "cost": paths.costs.get(broker),
                "via": network.name_of(paths.steps[broker]) if broker in paths.steps else None,
                "links": {network.name_of(other): cost for other, cost in member.links.items()},
                "interests": _interests_of(network, broker, False),
            }
            for broker, member in network.map.members.items()
        ],
        "gateways": [
            {
                "broker": gateway.name,
                "cluster": gateway.cluster,
                "speaker": network.name_of(gateway.speaker),
                "cost": paths.costs.get(broker),
                "via": network.name_of(paths.steps[broker]) if broker in paths.steps else None,
                "outside": {network.name_of(other): cost for other, cost in gateway.outside.items()},
                "inside": {network.name_of(other): cost for other, cost in gateway.inside.items()},
            }
            for broker, gateway in network.map.gateways.items()
        ],
        "clusters": [
            {
                "speaker": network.name_of(speaker),
                "cluster": network.map.gateways[gateway].cluster,
                "nearest_gateway": network.name_of(gateway),
                "cost": paths.costs[gateway],
                "interests": _interests_of(network, speaker, True),
            }
            for speaker, gateway in paths.parts.items()
        ],
        "out_of_reach": [network.name_of(broker) for broker in network.map.out_of_reach()],
        "remembered": [f"{what} {network.name_of(broker)}" for what, broker in network.memory.lost],
        "updates_heard": network.updates_heard,
        "updates_told": network.updates_told,
        "times_settled": network.times_settled,
        "times_changed": network.times_changed,
    }


def _interests_of(network: Network, broker: int, wide: bool) -> int:
    if broker == network.me:
        voice = network.speaker.voice if wide else network.voice
        return 0 if voice is None else len(voice.filters)
    owner = network.interests.owners.get((broker, wide))
    return 0 if owner is None else len(owner.filters)
