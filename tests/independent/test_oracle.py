"""The oracle itself: it sees each kind of fault that is planted into a right result, and the draws repeat.

In:    publications and deliveries made by hand.
Out:   claims about verdicts.
State: none.
Not here: live networks (test_networks.py).
"""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import pytest

from tests.independent.client import Client, Delivery, Publication
from tests.independent.crowd import random_crowd, random_plan
from tests.independent.oracle import Subscriber, judge, matches
from tests.independent.runs import topology_with_faults
from tests.independent.topologies import random_topology, two_triangles
from tests.independent.workload import Draft, Interest
from tests.wire.stdlib_client import unpack

PUBLISHER = Client("publisher", b"p" * 32)
SENT = [PUBLISHER.make(Draft(topic, {}, b"payload")) for topic in ("a", "b", "a", "b")]
PLAIN = Subscriber("plain", 7, {0: Interest("a"), 1: Interest("#")})
MEMBERS = [Subscriber(f"member-{number}", 8 + number, {0: Interest("b", group="workers")}) for number in (0, 1)]
ALL = [PLAIN, *MEMBERS]


def delivery(one: Publication, *numbers: int) -> Delivery:
    return Delivery(numbers, one.origin, one.sequence, one.raw)


def right() -> dict[str, list[Delivery]]:
    plain = [delivery(one, *([0, 1] if one.draft.topic == "a" else [1])) for one in SENT]
    return {"plain": plain, "member-0": [delivery(SENT[1], 0)], "member-1": [delivery(SENT[3], 0)]}


def test_the_oracle_is_content_with_what_is_right() -> None:
    verdict = judge(ALL, SENT, right())
    assert (verdict.sent, verdict.expected) == (4, 6)
    assert not any(verdict.wrong), verdict.details


def test_the_oracle_sees_what_is_lost_repeated_extra_and_misordered() -> None:
    came = right()
    del came["plain"][0], came["member-0"][0]
    assert judge(ALL, SENT, came).wrong == (2, 0, 0, 0, 0)

    came = right()
    came["plain"].append(came["plain"][-1])
    came["member-0"] *= 2
    assert judge(ALL, SENT, came).wrong == (0, 2, 0, 0, 0)

    came = right()
    came["member-0"].append(delivery(SENT[3], 0))
    assert judge(ALL, SENT, came).wrong == (0, 0, 1, 0, 0)

    came = right()
    came["plain"][0] = delivery(SENT[0], 1)
    came["plain"][1] = came["plain"][1]._replace(raw=b"other bytes")
    came["member-1"].append(delivery(SENT[2], 0))
    assert judge(ALL, SENT, came).wrong == (0, 0, 0, 3, 1)

    came = right()
    came["plain"] = [came["plain"][place] for place in (2, 0, 1, 3)]
    assert judge(ALL, SENT, came).wrong == (0, 0, 0, 0, 2)


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("a/+/c", "a/b/c", True),
        ("a/+", "a/b/c", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a", True),
        ("+", "a/b", False),
        ("a/b", "a", False),
    ],
)
def test_filters_match_as_the_protocol_page_says(pattern: str, topic: str, fits: bool) -> None:
    assert matches(pattern.split("/"), topic.split("/")) is fits


def test_a_client_cuts_deliveries_out_of_any_reads() -> None:
    frames = b"".join(one.raw for one in SENT)
    stream = unpack_delivery(frames)
    for size in (1, 7, 100, len(stream)):
        client = Client("reader", b"r" * 32)
        for begin in range(0, len(stream), size):
            client.data_received(stream[begin : begin + size])
        assert client.deliveries == [delivery(one, 3) for one in SENT]


def unpack_delivery(frames: bytes) -> bytes:
    head = (24 + 4 + len(frames)).to_bytes(4, "little") + bytes([3, 0]) + bytes(18) + (4).to_bytes(4, "little")
    stream = head + (3).to_bytes(4, "little") + frames
    assert unpack(stream).kind == 3
    return stream


def test_equal_seeds_draw_equal_networks_and_plans() -> None:
    for seed in range(1, 40):
        topology = random_topology(seed)
        assert topology == random_topology(seed)
        assert 8 <= len(topology.brokers) <= 12
        assert topology.connects(set(topology.brokers))
    assert random_plan("1", 30, 500, 1.0) == random_plan("1", 30, 500, 1.0)
    assert random_crowd("1", ["a1", "a2"], 30).places == random_crowd("1", ["a1", "a2"], 30).places
    assert two_triangles().neighbours("a1") == {"a2", "a3", "b1"}


def test_faults_leave_the_other_brokers_connected() -> None:
    for seed in range(1, 20):
        topology, faults = topology_with_faults(seed)
        others = set(topology.brokers) - {faults.killed, faults.paused}
        assert topology.without(faults.unlinked).connects(others)
        assert (topology, faults) == topology_with_faults(seed)


def test_client_and_oracle_share_no_code_with_heliograph() -> None:
    """The programs import it, because they are what is checked; so nothing here may import them."""
    for path in [*Path(__file__).parent.glob("*.py"), Path(__file__).parents[1] / "wire" / "stdlib_client.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "heliograph" or "programs" in name for name in names), path


def test_kinds_of_interest_agree_with_their_texts_on_examples() -> None:
    """A few by hand; live runs compare thousands with the brokers."""
    from tests.independent import workload

    draft = Draft("plant/1/heat", {"size": 95, "color": "red", "owner": "joanna", "urgent": False}, b"")
    predicate = workload.predicates(Random(1))
    assert predicate.fits(draft) is ("'red'" not in predicate.where)
    assert not predicate.fits(Draft("plant/1/heat", {"color": "red"}, b""))
    assert workload.sql(Random(1)).fits(draft)
    assert not workload.xpath(Random(1)).fits(draft)
