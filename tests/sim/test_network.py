"""Links: ordered byte streams that delay, stall, split, join and break; and every way in which a link ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.sim.distances import NetworkSettings
from heliograph.sim.loop import MILLISECOND, SECOND
from heliograph.sim.world import HostSettings, World
from tests.examples import examples
from tests.sim.machines import CALM, PORT, STEADY, Echo, a_link, add, add_pair, dial, hang_up, it, run, tell, write

chunk_lists = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30)


@given(chunk_lists, st.integers(0, 1_000), st.sampled_from([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]))
@examples(60)
def test_a_stream_arrives_complete_and_in_order_however_it_is_cut(
    chunks: list[bytes], seed: int, cuts: tuple[float, float]
) -> None:
    network = NetworkSettings(delay_ms=1, jitter_ms=5, split=cuts[0], join=cuts[1])
    world, left, right = a_link(seed, network, HostSettings())
    for chunk in chunks:
        write(world, left, chunk)
        run(world, 0.001)
    run(world, 1)

    assert b"".join(it(right).chunks) == b"".join(chunks)


@pytest.mark.req("O7")
def test_chunks_are_split_and_joined() -> None:
    world, left, right = a_link(1, NetworkSettings(split=1.0, join=0.0), STEADY)
    write(world, left, b"0123456789")
    run(world, 0.1)
    assert len(it(right).chunks) == 2

    world, left, right = a_link(1, NetworkSettings(split=0.0, join=1.0), STEADY)
    for _ in range(3):
        write(world, left, b"x")
    run(world, 0.1)
    assert it(right).chunks == [b"xxx"]


def test_one_write_of_several_frames_travels_as_one_chunk() -> None:
    world, left, right = a_link()
    write(world, left, b"one", b"two")
    run(world, 0.1)

    assert it(right).chunks == [b"onetwo"]


def test_both_sides_are_attached_and_only_the_dialler_sees_its_ticket() -> None:
    _, left, right = a_link()
    (_, _, called), (_, _, caller) = it(left).of("attach")[0], it(right).of("attach")[0]

    assert (called.transport, called.address, called.listener) == ("tcp", f"right:{PORT}", None)
    assert called.ticket is not None
    assert caller.address.startswith("left:")
    assert (caller.listener, caller.ticket) == ("main", None)


@pytest.mark.parametrize("to", ["nowhere", "right"])
def test_a_dial_that_nobody_answers_fails_once(to: str) -> None:
    world = World(1, network=CALM, hosts=STEADY)
    right = add(world, "right", listens=True)
    world.crash(right)
    left = add(world, "left")
    dial(world, left, to)

    assert [reason for _, _, reason in it(left).of("failed")] == [Reason.DIAL_FAILED]
    assert not it(left).of("attach")


def test_a_plain_dial_to_a_secure_listener_fails() -> None:
    world = World(1, network=CALM, hosts=STEADY)
    right = add(world, "right")
    world.listen(right, ("right", PORT), "main", "it", secure=True)
    left = add(world, "left")
    dial(world, left, "right")

    assert [reason for _, _, reason in it(left).of("failed")] == [Reason.TLS_FAILED]


def test_a_hangup_comes_after_the_writes_and_detaches_both_sides_once() -> None:
    world, left, right = a_link()
    write(world, left, b"last words")
    hang_up(world, left, Reason.DRAINING)
    run(world, 3)

    assert it(right).received == {it(right).link: b"last words"}
    assert it(right).of("detach") == [("detach", it(right).link, Reason.CLOSED)]
    assert it(left).of("detach") == [("detach", it(left).link, Reason.DRAINING)]


def test_what_arrives_after_a_machines_own_hangup_is_dropped() -> None:
    world, left, right = a_link()
    write(world, right, b"too late")
    hang_up(world, left)
    run(world, 3)

    assert not it(left).of("receive")
    assert len(it(right).of("detach")) == 1


def test_both_sides_hang_up_at_once_and_each_is_detached_once() -> None:
    world, left, right = a_link()
    hang_up(world, left)
    hang_up(world, right)
    run(world, 3)

    assert [len(it(host).of("detach")) for host in (left, right)] == [1, 1]


def test_a_hangup_that_cannot_be_flushed_is_cut_after_a_second() -> None:
    world, left, right = a_link()
    world.block(left, right)
    write(world, left, b"stuck")
    hang_up(world, left)
    run(world, 0.9)
    assert not it(left).of("detach")
    run(world, 0.2)
    assert len(it(left).of("detach")) == 1

    world.unblock(left, right)
    run(world, 1)
    assert not it(right).of("receive")
    assert it(right).of("detach") == [("detach", it(right).link, Reason.RESET)]


@pytest.mark.req("O7")
def test_a_one_way_partition_stops_one_direction_and_keeps_the_order() -> None:
    world, left, right = a_link()
    world.block(left, right)
    write(world, left, b"a")
    write(world, right, b"other way")
    run(world, 1)
    write(world, left, b"b")
    run(world, 1)
    assert not it(right).of("receive")
    assert it(left).chunks == [b"other way"]

    world.unblock(left, right)
    run(world, 1)
    assert b"".join(it(right).chunks) == b"ab"


def test_a_dial_into_a_partition_times_out() -> None:
    world = World(1, network=CALM, hosts=STEADY)
    right, left = add(world, "right", listens=True), add(world, "left")
    world.block(right, left)
    dial(world, left, "right")
    run(world, 4)
    assert not it(left).of("failed")
    run(world, 2)

    assert [reason for _, _, reason in it(left).of("failed")] == [Reason.TIME_OUT]


def test_a_link_made_during_a_partition_of_the_other_hosts_flows() -> None:
    world = World(1, network=CALM, hosts=STEADY)
    right, other, left = add(world, "right", listens=True), add(world, "other"), add(world, "left")
    world.block(other, right)
    dial(world, left, "right")
    write(world, left, b"hello")
    run(world, 0.1)

    assert it(right).chunks == [b"hello"]


def test_a_held_link_is_not_read_until_it_is_let_go() -> None:
    world, left, right = a_link()
    tell(world, right, lambda machine, now: machine.outbox.holds.append((machine.link, True)))
    run(world, 0.1)
    write(world, left, b"wait")
    run(world, 1)
    assert not it(right).of("receive")

    tell(world, right, lambda machine, now: machine.outbox.holds.append((machine.link, False)))
    run(world, 1)
    assert it(right).chunks == [b"wait"]


@pytest.mark.req("N15", "O7")
def test_a_writer_is_pressed_while_the_reader_does_not_read_and_relieved_after() -> None:
    world, left, right = a_link(1, NetworkSettings(delay_ms=1, jitter_ms=0, split=0, join=0, buffer_kib=1), STEADY)
    tell(world, right, lambda machine, now: machine.outbox.holds.append((machine.link, True)))
    run(world, 0.1)
    for _ in range(40):
        write(world, left, b"x" * 100)
    run(world, 1)
    assert [pressed for _, _, pressed in it(left).of("press")] == [True]

    tell(world, right, lambda machine, now: machine.outbox.holds.append((machine.link, False)))
    run(world, 1)
    assert [pressed for _, _, pressed in it(left).of("press")] == [True, False]
    assert len(b"".join(it(right).chunks)) == 4_000


def test_a_link_of_limited_bandwidth_takes_its_time() -> None:
    world, left, right = a_link(
        1, NetworkSettings(delay_ms=1, jitter_ms=0, split=0, join=0, bandwidth_kib_s=10), STEADY
    )
    write(world, left, b"x" * 10_240)
    run(world, 0.9)
    assert not it(right).of("receive")
    run(world, 0.2)
    assert len(it(right).received[it(right).link]) == 10_240


def test_a_reader_of_a_large_write_can_stop_before_all_of_it_has_come() -> None:
    """As with real links: a machine that holds a link is not given megabytes that were written at once."""
    network = NetworkSettings(delay_ms=1, jitter_ms=0, split=0, join=0, bandwidth_kib_s=1_000)
    world, left, right = a_link(1, network, STEADY)
    data = bytes(range(256)) * 4_000
    write(world, left, data)
    run(world, 0.2)
    tell(world, right, lambda machine, _: machine.outbox.holds.append((machine.link, True)))
    run(world, 2)
    assert 100_000 < len(it(right).received[it(right).link]) < 300_000

    tell(world, right, lambda machine, _: machine.outbox.holds.append((machine.link, False)))
    run(world, 2)
    assert it(right).received[it(right).link] == data


def test_a_delay_is_kept_to_the_nanosecond() -> None:
    world, left, right = a_link()
    write(world, left, b"x")
    began = world.loop.now
    run(world, 0.5)
    arrived = it(right).nows[-1] - right.shift

    assert arrived == began + left.service_ns + MILLISECOND + right.service_ns


def test_a_pipe_carries_bytes_within_a_host() -> None:
    world = World(1, network=CALM, hosts=STEADY)
    host = add_pair(world, "node")
    run(world, 0.1)
    one, two = (seat.machine for seat in host.seats)
    assert [peer.transport for _, _, peer in one.of("attach") + two.of("attach")] == ["pipe", "pipe"]
    assert [peer.address for _, _, peer in one.of("attach") + two.of("attach")] == ["two", "one"]

    write(world, host, b"through the pipe")
    run(world, 0.1)
    assert one.chunks == [b"through the pipe"]  # the other one is an echo

    hang_up(world, host)
    run(world, 0.1)
    assert [len(machine.of("detach")) for machine in (one, two)] == [1, 1]


@pytest.mark.req("N15", "O7")
def test_a_pipe_that_is_held_keeps_what_is_written_and_presses_the_writer_if_it_is_much() -> None:
    world = World(1, network=NetworkSettings(buffer_kib=1), hosts=STEADY)
    host = add_pair(world, "node")
    run(world, 0.1)
    one, two = (seat.machine for seat in host.seats)
    for held in (True, False):
        host.tell(host.seats[1], lambda machine, now, held=held: machine.outbox.holds.append((machine.link, held)))
        run(world, 0.1)
        for number in range(20 if held else 1):
            write(world, host, bytes([number]) * 100)
        run(world, 0.1)
        assert len(b"".join(two.chunks)) == (0 if held else 2_100)
        assert [pressed for _, _, pressed in one.of("press")] == ([True] if held else [True, False])
    assert b"".join(one.chunks) == b"".join(two.chunks) == b"".join(bytes([n]) * 100 for n in (*range(20), 0))


@pytest.mark.parametrize("ends", [0, 1])
def test_what_waits_in_a_pipe_is_received_before_its_end_but_not_by_the_machine_that_ends_it(ends: int) -> None:
    world = World(1, network=CALM, hosts=STEADY)
    host = add_pair(world, "node")
    run(world, 0.1)
    host.tell(host.seats[1], lambda machine, now: machine.outbox.holds.append((machine.link, True)))
    run(world, 0.1)
    write(world, host, b"last")
    run(world, 0.1)
    host.tell(host.seats[ends], lambda machine, now: machine.outbox.hang_up(machine.link, Reason.STOPPING))
    run(world, 0.1)
    one, two = (seat.machine for seat in host.seats)
    assert two.chunks == ([] if ends else [b"last"])
    assert [len(machine.of("detach")) for machine in (one, two)] == [1, 1]


def test_an_echo_over_a_lossless_world_returns_everything() -> None:
    world = World(7)
    add(world, "echo", Echo, listens=True)
    caller = add(world, "caller")
    dial(world, caller, "echo")
    for number in range(100):
        write(world, caller, b"%d," % number)
        run(world, 0.001)
    run(world, 1)

    assert it(caller).received[it(caller).link] == b"".join(b"%d," % number for number in range(100))
    assert world.loop.now > SECOND
