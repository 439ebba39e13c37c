"""The experiment of the paper on topics: creation in six steps, discovery of 1, 10 and 100 topics.

In:    a clock, how many runs.
Out:   rows in milliseconds, local and over a wide area, beside the paper's; the share of each step, and of each kind of
       work of the directory; RSA beside P-256; the paper's claims, as checks that can fail.
State: none.
Not here: whole processes (cli/evaluate_topics.py, --live), RSA beside P-256 (costs.py), the conversations and the
          directory (discovery/topics/).
Paper: [topics] §8, Tables 2 and 3.

Every step runs the real code of creator and directory, signed and sealed throughout, and is timed. Network delays are
computed from the distance of the sites: three exchanges for a creation, one for a discovery. The paper's wide area was
Bloomington and Indianapolis.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import Any

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.creation import TopicCreation
from heliograph.discovery.topics.finder import TopicFinder
from heliograph.discovery.topics.listing import Creation, Descriptors, Synopsis
from heliograph.discovery.topics.messages import (
    Create,
    FoundItem,
    FoundPage,
    Located,
    Search,
    TopicAcknowledged,
    TopicBody,
    TopicQuery,
)
from heliograph.discovery.topics.policy import TopicPolicy
from heliograph.discovery.topics.signer import TopicSigner
from heliograph.discovery.topics.statements import Statements
from heliograph.evaluation import costs
from heliograph.evaluation.places import SITES
from heliograph.evaluation.statistics import Summary, kept, summary
from heliograph.evaluation.timed_keyring import ENCRYPTING, WORK, TimedKeyring
from heliograph.model.identity import Role
from heliograph.trust.certificates import issue, make_authority
from heliograph.trust.chains import Authorities, Holder
from heliograph.trust.keyring import Keyring, Own

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
WALL_NS = (int(BEGIN.timestamp()) + 86_400) * 10**9
Clock = Callable[[], float]
STEPS = (
    "1 entity: TDN discovery request",
    "2 TDN: encrypted TDN discovery response",
    "3 entity: encrypted creation request",
    "4 TDN: creates and signs the advertisement",
    "5 TDN: encrypts the response",
    "6 entity: verifies, countersigns, publishes",
)
OF_TDN = (1, 3, 4)  # the steps of the directory …
ENCRYPTED = (1, 4)  # … and those whose result it encrypts
COUNTS = (1, 10, 100)
PAPER = {  # Tables 2 (wide area) and 3 (local): mean, standard deviation, maximum, minimum, standard error
    "wide": {
        "create": Summary(100, 641.06, 38.51, 723.18, 551.63, 3.85),
        "find 1": Summary(100, 236.86, 32.01, 348.88, 178.95, 3.20),
        "find 10": Summary(100, 378.33, 33.42, 548.11, 326.8, 3.34),
        "find 100": Summary(100, 829.69, 73.61, 1_057.5, 712.84, 7.36),
    },
    "local": {
        "create": Summary(100, 211.26, 22.19, 319.5, 180.35, 2.22),
        "find 1": Summary(100, 65.86, 10.74, 99.38, 47.26, 1.07),
        "find 10": Summary(100, 104.25, 21.49, 258.5, 81.29, 2.15),
        "find 100": Summary(100, 480.72, 49.89, 672.75, 422.67, 4.99),
    },
}
EXCHANGES = {"create": 3, "find 1": 1, "find 10": 1, "find 100": 1}
LOCAL_MS = 0.2  # a round trip through a broker on one machine


class _Parties:
    """An authority, a directory whose keyring is timed, and an entity."""

    def __init__(self, clock: Clock) -> None:
        draw = Random("topics").randbytes
        authority = make_authority("evaluation", BEGIN, draw=draw)
        trusted = Authorities.from_pem(authority.certificate)

        def own(name: str, role: Role) -> Own:
            pair = issue(authority, name, (role,), (), BEGIN, 90, draw=draw)
            return Own.from_pem(pair.certificate, pair.key)

        self.entity = Statements(Keyring(trusted, own("entity", Role.CLIENT)))
        self.timed = TimedKeyring(trusted, own("tdn-1", Role.DIRECTORY), clock)
        self.directory = Statements(self.timed)
        config = TopicDirectoryConfig()
        policy = TopicPolicy(config, "tdn-1")
        self.signer = TopicSigner(config, "tdn-1", 1, self.directory, policy)
        shown = self.entity.keyring.own
        assert shown is not None
        self.holder: Holder = self.directory.keyring.learn(shown.chain, WALL_NS)

    def creation(self) -> Creation:
        said = Descriptors("plant/hall-3/temperature", "temperature of hall three", ["sensor"], {"floor": 3})
        return Creation("entity", 3_600, descriptors=said, synopsis=Synopsis("string", "temperature"))


def evaluate(clock: Clock, runs: int) -> dict[str, Any]:
    """All results, as plain values."""
    parties = _Parties(clock)
    parties.timed.restart()
    creations = [_create(parties, clock, number) for number in range(runs)]
    work = _work(parties, creations)
    records = [_record(parties, number) for number in range(COUNTS[-1])]
    measured = {"create": [sum(one) for one in creations]}
    encrypting: dict[int, float] = {}
    for count in COUNTS:
        parties.timed.restart()
        measured[f"find {count}"] = [_find(parties, clock, records[:count], number) for number in range(runs)]
        encrypting[count] = parties.timed.seconds[ENCRYPTING] * 1_000 / runs
    steps = [_step(number, creations) for number in range(len(STEPS))]
    return {
        "runs": runs,
        "rows": rows_of(measured, LOCAL_MS),
        "steps": steps,
        "work": work,
        "keys": costs.keys(clock, min(runs, 50)),
        "checks": _checks(measured, steps, encrypting),
    }


def _create(parties: _Parties, clock: Clock, number: int) -> list[float]:
    """The milliseconds of the six steps of one creation."""
    times = [clock()]
    conversation = TopicCreation(parties.entity, parties.creation(), b"%d" % number)
    conversation.start(WALL_NS, 0)
    (_, locate) = conversation.outgoing.pop()
    times.append(clock())
    said = parties.directory.read(locate, WALL_NS)
    asked = parties.directory.body(said, messages.Locate)
    located = parties.directory.write(Located(asked.id, "tdn-1"), said.holder)
    times.append(clock())
    conversation.hear(located, 1)
    (_, create) = conversation.outgoing.pop()
    times.append(clock())
    said = parties.directory.read(create, WALL_NS)
    created = parties.signer.create(said, parties.directory.body(said, Create), WALL_NS)
    times.append(clock())
    answer = parties.directory.write(created, said.holder)
    times.append(clock())
    conversation.hear(answer, 2)
    (_, _advertisement) = conversation.outgoing.pop()
    times.append(clock())
    assert not conversation.refusals, conversation.refusals
    return [(after - before) * 1_000 for before, after in pairwise(times)]


def _record(parties: _Parties, number: int) -> bytes:
    """A countersigned advertisement, as directories keep it."""
    conversation = TopicCreation(parties.entity, parties.creation(), b"record %d" % number)
    conversation.start(WALL_NS, 0)
    _answer(parties, conversation, lambda id: Located(id, "tdn-1"), messages.Locate)
    said = parties.directory.read(conversation.outgoing.pop()[1], WALL_NS)
    created = parties.signer.create(said, parties.directory.body(said, Create), WALL_NS)
    conversation.hear(parties.directory.write(created, said.holder), 2)
    _answer(parties, conversation, lambda id: TopicAcknowledged(id, "tdn-1"), messages.Advertise)
    record: bytes = conversation.result.record
    return record


def _answer(parties: _Parties, conversation: TopicCreation, body: Callable[[bytes], TopicBody], kind: Any) -> None:
    said = parties.directory.read(conversation.outgoing.pop()[1], WALL_NS)
    asked = parties.directory.body(said, kind)
    conversation.hear(parties.directory.write(body(asked.id), said.holder), 1)


def _find(parties: _Parties, clock: Clock, records: list[bytes], number: int) -> float:
    """The milliseconds of one discovery: request, answer, and every directory signature verified."""
    asker = Statements(Keyring(parties.entity.keyring.authorities, parties.entity.keyring.own))
    began = clock()
    finder = TopicFinder(asker, TopicQuery("keywords", "temperature"), b"%d" % number, directories=("tdn-1",))
    finder.start(WALL_NS, 0)
    said = parties.directory.read(finder.outgoing.pop()[1], WALL_NS)
    search = parties.directory.body(said, Search)
    unpacked = [messages.unpack(record) for record in records]
    chains = tuple(dict.fromkeys(chain for message in unpacked for chain in message.chains))
    items = [FoundItem(message.body) for message in unpacked]
    page = FoundPage(search.id, "tdn-1", items, 1, last=True)
    finder.hear(parties.directory.write(page, said.holder, chains), 1)
    took = (clock() - began) * 1_000
    assert len(finder.take()) == len(records)
    return took


def rows_of(measured: dict[str, list[float]], local_ms: float) -> list[dict[str, Any]]:
    """Both topologies beside the paper's; ``local_ms`` is the time of a local exchange, added to the measured one."""
    return [_row(place, what, times, local_ms) for place in ("local", "wide") for what, times in measured.items()]


def _row(place: str, what: str, times: list[float], local_ms: float) -> dict[str, Any]:
    there = SITES["bloomington"].round_trip_ms(SITES["indianapolis"]) if place == "wide" else local_ms
    network = EXCHANGES[what] * there
    ours = summary([times[number] + network for number in kept(times)])
    return {
        "topology": place,
        "what": what,
        "ours": ours.as_dict(),
        "network_ms": round(network, 2),
        "paper": PAPER[place][what].as_dict(),
    }


def _work(parties: _Parties, creations: list[list[float]]) -> list[dict[str, Any]]:
    """What the directory does during a creation, by kind of work."""
    whole = _in_tdn(creations)
    took = {work: parties.timed.seconds[work] * 1_000 for work in WORK}
    took["everything else"] = whole - sum(took.values())
    return [
        {"work of the TDN": work, "mean_ms": round(ms / len(creations), 3), "share_in_tdn": round(ms / whole, 3)}
        for work, ms in took.items()
    ]


def _in_tdn(creations: list[list[float]]) -> float:
    return sum(one[at] for one in creations for at in OF_TDN)


def _step(number: int, creations: list[list[float]]) -> dict[str, Any]:
    mine, whole = sum(one[number] for one in creations), sum(sum(one) for one in creations)
    return {
        "step": STEPS[number],
        "mean_ms": round(mine / len(creations), 3),
        "share": round(mine / whole, 3),
        "share_in_tdn": round(mine / _in_tdn(creations), 3) if number in OF_TDN else None,
    }


def _checks(
    measured: dict[str, list[float]], steps: list[dict[str, Any]], encrypting: dict[int, float]
) -> list[dict[str, Any]]:
    """The paper's claims, as checks that can fail."""
    means = {what: summary(times).mean for what, times in measured.items()}
    few, many = COUNTS[0], COUNTS[-1]
    grown, encrypted = means[f"find {many}"] - means[f"find {few}"], encrypting[many] - encrypting[few]
    share = sum(steps[at]["share_in_tdn"] for at in ENCRYPTED)
    return [
        {
            "claim": "discovery takes longer the more topics are found",
            "holds": means["find 1"] < means["find 10"] < means["find 100"],
            "values": f"{means['find 1']:.2f}, {means['find 10']:.2f}, {means['find 100']:.2f} ms",
        },
        {
            "claim": "every figure is below the paper's local one",
            "holds": all(means[what] < PAPER["local"][what].mean for what in means),
            "values": "",
        },
        {
            "claim": "most of the TDN's time in a creation is in the steps whose result it encrypts",
            "holds": share > 0.5,
            "values": f"{share:.2f} of it",
        },
        {
            "claim": "discovery takes longer mainly because larger responses take longer to encrypt",
            "holds": encrypted > grown / 2,
            "values": f"{encrypted:.2f} of {grown:.2f} ms",
        },
    ]
