"""Networks: the network of each broker that answered a search, and what to tell the user if there are several.

In:    the candidates of one search; whether a directory that the user named lists them.
Out:   candidates by network; texts that list the networks and say how to choose.
State: none: functions only.
Not here: names of networks (model/identity.py), choosing among brokers of one network (selection.py).

A named network is identified by its name. Brokers without a network name belong to one network if they are linked,
directly or through others: then they report the same island. They also do if they were linked recently and a failure
parted them: then they report the same former island. Two brokers with the same name are never linked, so these belong
to two networks, whatever they report. All brokers listed by a directory that the user named are one network, linked or
not; if that directory does not answer, those that it listed in an earlier search still are. While brokers start and
link, one network looks like several islands: they say so in their answers, and the search should be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig, written
from heliograph.discovery.brokers.remembered import Vouched
from heliograph.discovery.brokers.result import SearchResult, finding_of
from heliograph.errors import Reason
from heliograph.model.identity import describe_network

NAMED_MAX = 8  # networks in a text …
BROKERS_MAX = 3  # … and brokers of each

Key = tuple[str, str]
"""A network's name or, if it has none, what distinguishes it from others."""


def by_network(
    candidates: Iterable[Candidate], *, listed: bool, vouched: Vouched | None = None
) -> dict[Key, list[Candidate]]:
    """The candidates of each network, in the order of their keys. ``listed``: unnamed ones are one network.

    So are those that a directory knew earlier (``vouched``), with all that are linked to one of them.
    """
    all_candidates = list(candidates)
    kin = _kin([one for one in all_candidates if not one.response.network], vouched or {})
    seen = Counter((kin.get(one.response.island), one.name) for one in all_candidates if not one.response.network)
    found: dict[Key, list[Candidate]] = {}
    for one in all_candidates:
        said = one.response
        if said.network or listed:
            key = (said.network, "")
        elif seen[kin[said.island], one.name] > 1:
            key = ("", f"{kin[said.island]} {one.name} {one.place}")
        else:
            key = ("", kin[said.island])
        found.setdefault(key, []).append(one)
    return dict(sorted(found.items()))


def _kin(unnamed: Sequence[Candidate], vouched: Vouched) -> dict[str, str]:
    """For each island, the smallest of those that are, or recently were, one with it."""
    least: dict[str, str] = {}
    known = tuple(one.response.island for one in unnamed if is_vouched(one, vouched))
    for one in unnamed:
        told = (one.response.island, *one.response.before)
        if one.response.island in known:
            told += known
        old = [least[island] for island in told if island in least]
        new = min((*told, *old))
        least.update(dict.fromkeys(told, new))
        for island, other in least.items():
            if other in old:
                least[island] = new
    return least


def is_vouched(one: Candidate, vouched: Vouched) -> bool:
    """True if a directory knew this broker earlier, at this address."""
    return one.seen is not None and (one.name, written(one.seen)) in vouched


def is_settling(networks: dict[Key, list[Candidate]]) -> bool:
    """True if the unnamed networks may turn out to be one: one of their brokers is still starting or linking."""
    unnamed = [members for (name, _), members in networks.items() if not name]
    return len(unnamed) > 1 and any(one.response.settling for members in unnamed for one in members)


def describe(networks: dict[Key, list[Candidate]], transports: tuple[str, ...]) -> str:
    """Each network with some of its brokers."""
    texts = [_describe(name, members, transports) for (name, _), members in list(networks.items())[:NAMED_MAX]]
    more = len(networks) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def refusal(
    candidates: Iterable[Candidate], config: DiscoveryConfig, *, listed: bool, vouched: Vouched
) -> SearchResult | None:
    """The end of a search that must not choose, because brokers of several networks have answered; else None."""
    if config.network is not None or not config.is_choosy:
        return None
    found = by_network(candidates, listed=listed and not config.is_implied, vouched=vouched)
    if len(found) < 2:
        return None
    return SearchResult(
        reason=Reason.NETWORKS_SEVERAL,
        text=several(found, config.transports),
        findings=tuple(finding_of(one, config.transports) for members in found.values() for one in members),
        settling=is_settling(found),
    )


def several(networks: dict[Key, list[Candidate]], transports: tuple[str, ...]) -> str:
    """Which networks there are, and how to choose one."""
    how = "choose one by its name (network=, --network or $HELIOGRAPH_NETWORK) or by a broker's address (--url)"
    if sum(not name for name, _ in networks) > 1:
        how += "; those without a name get one by `heliograph broker run --network NAME`, or network.name"
    return f"brokers of {len(networks)} networks answered: {describe(networks, transports)}; {how}"


def none_of(wanted: str, others: Sequence[Candidate], transports: tuple[str, ...]) -> str:
    """No broker of the wanted network answered, but brokers of others did."""
    there = describe(by_network(others, listed=True), transports)
    return f"no broker of {describe_network(wanted)} answered, but of others: {there}"


def _describe(name: str, members: Sequence[Candidate], transports: tuple[str, ...]) -> str:
    shown = [f"{one.name} at {one.urls(transports)[0]}" for one in members[:BROKERS_MAX]]
    more = len(members) - len(shown)
    brokers = ", ".join(shown) + (f" and {more} more" if more else "")
    return f"{name!r} ({brokers})" if name else f"one without a name ({brokers})"
