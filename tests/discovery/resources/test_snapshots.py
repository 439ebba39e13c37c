"""A large table reaches a new neighbour in portions, whole and in order, whatever changes or breaks meanwhile."""

from __future__ import annotations

import pytest

from heliograph.discovery.resources import messages, snapshots
from heliograph.discovery.resources.messages import AdvertisedResource, AdvertisementsOffered, AdvertisementsTold
from heliograph.discovery.resources.snapshots import PARTS_AT_ONCE, STALLED_NS, Snapshots
from tests.discovery.resources.net import SECOND, Net
from tests.discovery.resources.pipe import OnPipe

MANY = 64 * PARTS_AT_ONCE * 3 + 5
HEAD = (1, "a", "main", 1, 1, 7)


def hosting(net: Net, at: str, first: int = 1, count: int = MANY) -> None:
    for id in range(first, first + count):
        net.register(at, id, f"x = {id}", static=True)


def ids_at(net: Net, name: str, host: int = 1) -> set[int]:
    found = net.nodes[name].core.table.hosts.get(host)
    return set() if found is None else set(found.resources)


def widest(net: Net) -> int:
    """Parts of snapshots that were on one link at a time, at most."""
    most = 0
    carry = net.carry

    def watched(source: str, wire: object, payload: bytes) -> None:
        nonlocal most
        message = messages.decode(payload)
        carry(source, wire, payload)  # type: ignore[arg-type]
        if isinstance(message, AdvertisementsTold) and message.paced:
            waiting = [messages.decode(each) for _, each in wire.queue]  # type: ignore[attr-defined]
            count = sum(isinstance(one, AdvertisementsTold) for one in waiting)
            most = max(most, count)

    net.carry = watched  # type: ignore[method-assign]
    net.mend(("b", "c"))
    net.reroute()
    net.run(5)
    return most


@pytest.mark.req("R2")
def test_a_new_neighbour_gets_a_large_table_in_portions_and_passes_it_on() -> None:
    net = Net(list("abcd"), [("a", "b"), ("c", "d")])
    hosting(net, "a")
    net.run(1)
    assert widest(net) == PARTS_AT_ONCE
    assert ids_at(net, "c") == ids_at(net, "d") == set(range(1, MANY + 1))
    assert all(node.core.spreading.is_settled for node in net.nodes.values())
    assert all(node.core.refused == {} for node in net.nodes.values())


@pytest.mark.req("R2")
def test_changes_during_a_snapshot_come_behind_it() -> None:
    net = Net(list("abcd"), [("a", "b"), ("c", "d")])
    hosting(net, "a")
    net.run(1)
    net.mend(("b", "c"))
    net.reroute()
    for id in range(1, 21):
        net.run(0.003)
        net.nodes["a"].core.hosting.withdraw(id)
        net.register("a", MANY + id, f"x = {id}", static=True)
    net.run(5)
    expected = set(range(21, MANY + 21))
    assert [ids_at(net, name) for name in "abcd"] == [expected] * 4
    assert net.nodes["c"].core.refused == {}, "no gap was noticed"


@pytest.mark.req("R2", "R13")
def test_a_snapshot_whose_sender_goes_comes_from_another_neighbour() -> None:
    net = Net(list("abcd"), [("a", "b"), ("a", "d")])
    hosting(net, "a")
    net.run(1)
    for edge in (("b", "c"), ("c", "d")):
        net.mend(edge)
    net.reroute()
    net.run(0.006)
    assert 0 < len(ids_at(net, "c")) < MANY
    [source] = net.nodes["c"].core.spreading._arriving.values()
    net.cut(("b", "c") if net.nodes["c"].wires[source].to == "b" else ("c", "d"))
    net.reroute()
    net.run(5)
    assert ids_at(net, "c") == set(range(1, MANY + 1))


@pytest.mark.req("R2", "R13")
@pytest.mark.parametrize("lost", [1, 3, PARTS_AT_ONCE + 2, -1], ids=["second", "fourth", "later", "last"])
def test_a_part_that_is_lost_is_noticed(lost: int) -> None:
    net = Net(list("abc"), [("a", "b")])
    hosting(net, "a")
    net.run(1)
    carry, dropped = net.carry, []

    def losing(source: str, wire: object, payload: bytes) -> None:
        message = messages.decode(payload)
        is_part = isinstance(message, AdvertisementsTold) and message.paced
        if is_part and not dropped and lost in (message.part, -1 if not message.more else message.part):
            dropped.append(message.part)
        else:
            carry(source, wire, payload)  # type: ignore[arg-type]

    net.carry = losing  # type: ignore[method-assign]
    net.mend(("b", "c"))
    net.reroute()
    for _ in range(2 * STALLED_NS // SECOND):
        net.run(1)
    assert dropped
    assert ids_at(net, "c") == set(range(1, MANY + 1))


@pytest.mark.req("R2", "R13")
def test_a_service_begins_anew_with_a_neighbour_that_takes_no_part_of_a_snapshot() -> None:
    pipe = OnPipe()
    for id in range(1, MANY + 1):
        pipe.receive(pipe.request(pipe.register(id, where=f"x = {id}", model="static")))
    pipe.sent.clear()
    pipe.tell(AdvertisementsOffered(wants=[1]))
    assert len(pipe.sent) == PARTS_AT_ONCE, "all of them are lost"
    pipe.sent.clear()
    for _ in range(STALLED_NS // SECOND + 2):
        pipe.pass_time(1_000)
    assert [each.fresh for each in pipe.sent if isinstance(each, AdvertisementsOffered)] == [True]
    pipe.tell(AdvertisementsOffered(wants=[1]))
    assert any(isinstance(each, AdvertisementsTold) and each.paced for each in pipe.sent)


def some(count: int) -> list[AdvertisedResource]:
    return [AdvertisedResource(id, True, f"x = {id}", 1) for id in range(count)]


@pytest.mark.req("R2")
def test_what_waits_behind_a_snapshot_is_bounded_and_a_neighbour_that_takes_nothing_is_noticed() -> None:
    sent: list[messages.Message] = []
    sending = Snapshots(lambda link, message: sent.append(message))
    sending.stalled(0)
    sending.begin(5, HEAD, some(MANY))
    assert len(sent) == PARTS_AT_ONCE
    change = AdvertisementsTold(1, "a", "main", 1, 1, 8, remove=[3])
    assert all(sending.follow(5, change) for _ in range(snapshots.CHANGES_MAX + 1))
    assert not sending.follow(5, change), "the snapshot was given up"
    assert not sending.follow(6, change)
    assert sending.stalled(STALLED_NS) == []
    assert sending.stalled(STALLED_NS + 1) == [5]
    sending.taken(5, [(1, part) for part in range(PARTS_AT_ONCE)])
    assert sending.stalled(3 * STALLED_NS) == []


@pytest.mark.req("R2")
def test_parts_that_were_never_sent_are_not_taken() -> None:
    sent: list[messages.Message] = []
    sending = Snapshots(lambda link, message: sent.append(message))
    sending.begin(5, HEAD, some(MANY))
    sending.taken(5, [(9, 0), (1, 999), (1, 77)])
    sending.taken(6, [(1, 0)])
    assert len(sent) == PARTS_AT_ONCE
    offered = AdvertisementsOffered(taken=[(1, 0)])
    assert messages.decode(messages.encode(offered)) == offered
