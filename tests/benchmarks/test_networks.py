"""Benchmarks over several brokers: what is read, and what is made of it.

In:    frames, times and measurements made up for the purpose.
Out:   claims about arrivals.py, probes.py, steady.py, peers/network.py and the results of hop, interest and reroute.
State: none.
Not here: measuring; the brokers.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import socket
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import hop, interest, reroute
from benchmarks.arrivals import Arrivals
from benchmarks.field import Field
from benchmarks.generator import RunError
from benchmarks.peers import LINKABLE
from benchmarks.peers.network import CHAIN, CHAIN_LINKS, Place, places
from benchmarks.peers.ours import CONFIRMED, DELIVERY, HEAD, PING, PONG, control, event
from benchmarks.peers.server import relay
from benchmarks.ports import free_port
from benchmarks.probes import FIRST_NS, STEPS_NS, Staircase
from benchmarks.sinks import MismatchError
from benchmarks.steady import Log, longest

GOODBYE = 18


def delivery(*numbers: int, lost: int = 0) -> bytes:
    frames = b"".join(event("plant/x", b"payload", 7, number) for number in numbers)
    return HEAD.pack(HEAD.size + len(frames), DELIVERY, 0, 0, lost, 0, 4) + bytes(4) + frames


@given(st.lists(st.integers(0, 200), max_size=8))
def test_arrivals_are_the_same_however_the_bytes_are_split(cuts: list[int]) -> None:
    data = control(CONFIRMED, 1) + delivery(1, 2) + control(PING, 9) + delivery(3)
    arrivals = Arrivals()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [number for a, b in pairwise(bounds) for number in arrivals.feed(data[a:b])]
    assert found == [1, 2, 3]
    assert arrivals.replies == control(PONG, 9)


@pytest.mark.parametrize("data", [delivery(1, lost=2), control(GOODBYE, 0, {"reason": "draining"})])
def test_a_subscriber_that_lost_something_or_is_sent_away_has_no_arrivals(data: bytes) -> None:
    with pytest.raises(MismatchError):
        Arrivals().feed(data)


def test_whom_a_server_dials_is_started_before_it_and_ports_differ() -> None:
    found = places(reroute.NAMES, reroute.LINKS, Path("key"))
    order = [place.name for place in found]
    assert all(order.index(listener) < order.index(dialler) for dialler, listener in reroute.LINKS)
    ports = [port for place in found for port in (place.port, place.links_port)]
    assert len(set(ports)) == len(ports)


def test_who_dials_through_a_relay_dials_its_port() -> None:
    found = {place.name: place for place in places(reroute.NAMES, reroute.LINKS, Path("key"), {("a", "b"): 7})}
    assert found["a"].dials[0][0] == 7
    assert found["a"].dials[1][0] == found["c"].port


@pytest.mark.live
def test_a_relay_resets_both_ends_of_a_link() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = free_port()
        process = relay(stack, "tcp", "127.0.0.1", port, server.getsockname()[1], 0)
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        accepted, _ = server.accept()
        stack.enter_context(accepted)
        client.sendall(b"there")
        assert accepted.recv(5) == b"there"
        process.send_signal(signal.SIGUSR1)
        for end in (client, accepted):
            end.settimeout(60)
            with pytest.raises(ConnectionResetError):
                end.recv(1)


@pytest.mark.parametrize("name", ["ours", "nats", "mosquitto", "zenoh"])
def test_the_settings_of_a_linked_server_name_the_port_that_it_dials(name: str, tmp_path: Path) -> None:
    if (reason := LINKABLE[name].absent()) is not None:
        pytest.skip(reason)
    last, middle, _ = places(CHAIN, CHAIN_LINKS, tmp_path / "key")
    command = LINKABLE[name].linked(tmp_path, middle)
    settings = Path(command[-1]).read_text()
    dialled = last.links_port if name == "nats" else last.port
    assert str(middle.port) in settings
    assert str(dialled) in settings


def test_a_server_without_links_dials_nobody(tmp_path: Path) -> None:
    LINKABLE["ours"].linked(tmp_path, Place("a", 4717, 4718, (), tmp_path / "key"))
    assert "network.links" not in (tmp_path / "heliograph.toml").read_text()


def test_a_hop_is_half_of_what_three_brokers_add_to_one() -> None:
    found = hop.per_hop({"p50_us": 30.0, "p99_us": 1.0}, {"p50_us": 110.0, "p99_us": 200.0})
    assert found == {"hop_us": 40.0, "p50_us": 110.0, "p50_one_us": 30.0, "p99_us": 200.0}


def test_a_chain_that_uses_three_times_as_much_as_one_broker_costs_one_each() -> None:
    measured = {"kmsg_s": 100.0, "generator_busy": 0.1, "broker_waited": 0.0}
    found = hop.by_one({"cpu_us": 2.0, **measured}, {"cpu_us": 6.0, **measured})
    assert found["by_one"] == 1.0
    assert found["cpu_us"] == 2.0


@given(st.integers(50_000, 1_500_000))
def test_the_delays_of_probes_gather_where_half_of_them_arrive(true_ns: int) -> None:
    random, stairs, delays = Random(1), Staircase(), []
    for count, step_ns in zip((40, 200), STEPS_NS, strict=True):
        for _ in range(count):
            delays.append(stairs.delay_ns)
            stairs.step(stairs.delay_ns > random.gauss(true_ns, 10_000), step_ns)
    assert delays[0] == FIRST_NS
    assert abs(median(delays[-150:]) - true_ns) <= STEPS_NS[1]


def test_subscriptions_that_are_never_in_force_end_the_run() -> None:
    stairs = Staircase()
    with pytest.raises(MismatchError):
        stairs.step(arrived=False, step_ns=2 * 10**9)


def test_a_round_of_probes_is_summed_up_by_medians() -> None:
    found = interest.summary([(400.0, None), (420.0, 900.0), (440.0, 1_100.0), (410.0, None), (430.0, 1_000.0)])
    assert found == {"in_force_ms": 0.42, "arrived_ms": 1.0, "share": 0.6}
    with pytest.raises(RunError):
        interest.summary([(400.0, None)])


def test_a_gap_that_began_before_the_fault_or_ended_after_the_watch_counts() -> None:
    times = [0.0, 0.5, 1.0, 4.0, 4.5]
    assert longest(times, 1.5, 2.0) == 3.0
    assert longest(times, 4.0, 9.0) == 0.5
    assert longest(times, 0.0, 1.0) == 0.5
    assert longest([], 0.0, 1.0) == 0.0


def test_lost_repeated_and_overtaken_publications_are_told_apart() -> None:
    log = Log({number: number / 10 for number in range(1, 6)}, [(0.2, 1), (0.3, 3), (0.9, 2), (1.0, 3), (1.1, 5)])
    assert (log.lost, log.repeated, log.overtaken) == (1, 1, 1)
    assert log.gap(0.25, 1.0, 0.1) == pytest.approx(0.5)
    assert log.quiet_gap(0.35, 0.1) == pytest.approx(0.0)
    assert log.delay(0.15, 0.45) == pytest.approx(0.7)


def entries(cases: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"round": 1, "system": "ours", "case": case, **dict.fromkeys(names, 1.0)} for case, names in cases.items()]


def test_every_result_has_the_promised_fields_and_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    results = {
        hop: hop._result(Field(None, hop.ABLE), entries(hop.FIGURES)),
        interest: interest._result(Field(None, interest.ABLE), entries({interest.CASE: interest.FIGURES})),
        reroute: reroute._result(entries(dict.fromkeys(reroute.CASES, reroute.FIGURES))),
    }
    for module, result in results.items():
        assert {"name", "ours", "peers", "ratios", "rounds", "spread", "budget"} <= set(result)
        assert module.show(result | {"machine": {"pinned": "not at all"}})
        json.dumps(result)
    assert results[hop]["peers"]["nats"] == {"absent": "nats-server is not installed (make bench-peers)"}
    assert results[interest]["peers"]["zenoh"]["absent"].startswith("eclipse-zenoh is not installed")


def test_one_repeated_publication_in_any_round_misses_the_budget() -> None:
    rounds = entries(dict.fromkeys(reroute.CASES, reroute.FIGURES))
    assert reroute._result(rounds)["budget"][-1]["met"] is False
    assert reroute._result([entry | {"repeated": 0} for entry in rounds])["budget"][-1]["met"] is True
