"""The short form of ``make fuzz``, and every input that ever did harm.

In:    fuzz.py and the files in corpus/.
Out:   claims that brokers go on serving, and that the fuzzer would notice if they did not.
State: none.
Not here: the long run (``make fuzz``).
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest

from heliograph.discovery.resources.calls import Call
from heliograph.discovery.topics.right_requests import RightsRequest
from heliograph.machine import Effects, Outbox
from heliograph.node import SERVICES
from heliograph.notes import ReloadFailed
from heliograph.wire.stores import StoreRequest
from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.fuzz import fuzz, network_target, shrinking
from tests.fuzz.driver import Driver, FaultError, Seat
from tests.fuzz.network_target import NAME, NetworkTarget
from tests.fuzz.service_requests import CATALOGUE, CERTIFICATES
from tests.fuzz.steps import Input, Step
from tests.fuzz.valid import SECRETS, event, hello, subscribe

pytestmark = pytest.mark.req("O6")

ROUNDS = 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_bad_inputs_do_a_network_no_harm_and_meet_every_reason(seed: int, tmp_path: Path) -> None:
    outcome = fuzz.Outcome()
    for number in range(ROUNDS):
        outcome.add(fuzz.shoot_round(seed, number, corpus=tmp_path))
    assert outcome.faults == []
    assert outcome.missing == [], str(outcome)
    assert outcome.inputs == ROUNDS * fuzz.ROUND
    assert min(outcome.kinds[kind] for kind in ("frames", "datagrams", "requests", "signed", "stored")) >= 500


@pytest.mark.live
@pytest.mark.slow
def test_bad_inputs_over_sockets_do_a_broker_no_harm(tmp_path: Path) -> None:
    outcome = fuzz.shoot_live(1, 0, 150, corpus=tmp_path)
    assert outcome.faults == []
    assert outcome.inputs == 150


@pytest.mark.parametrize("file", sorted(fuzz.CORPUS.glob("*.txt")), ids=lambda file: file.stem)
def test_an_input_that_once_did_harm_does_none_now(file: Path) -> None:
    assert shrinking.fault_of(Input.read(file.read_text())) is None


def test_an_input_is_read_as_it_was_written() -> None:
    text = (
        "# frames\n0 dial main@beside\n0 bytes 00ff\n0 silence 10\n0 press\n0 leave\n"
        "1 datagram 203.0.113.1:9 beside:4 00\n1 datagram 203.0.113.1:9 beside:4\n1 prove bob cut 61\n1 until 20\n"
    )
    given = Input.read(text)
    assert [step.verb for step in given.steps][:5] == ["dial", "bytes", "silence", "press", "leave"]
    assert given.steps[5] == Step(1, "datagram", b"\0", "203.0.113.1:9 beside:4")
    assert given.steps[7] == Step(1, "prove", b"a", "bob cut")
    assert str(given) == text


# -- would it notice? -------------------------------------------------------------------------------------------------


def test_the_network_has_every_service_and_the_fuzzer_asks_each_of_them() -> None:
    driver = NetworkTarget().driver
    assert {service.name for service in SERVICES} <= {name for node, name in driver.seats if node == NAME}
    assert {service.name for service in SERVICES} <= {*CATALOGUE, CERTIFICATES}


@pytest.mark.parametrize(
    ("service", "calls"), [("stores", StoreRequest), ("resources", Call), ("rights", RightsRequest)]
)
def test_the_fuzzer_knows_every_request_and_every_field(service: str, calls: Any) -> None:
    asked: dict[str, set[str]] = {}
    for request in CATALOGUE[service](Random(1), NetworkTarget().knowledge):
        asked.setdefault(request["do"], set()).update(request)
    fields = {call.__struct_config__.tag: {"do", *call.__struct_fields__} for call in get_args(calls)}
    assert asked == fields


class Odd:
    """A machine with a bug: it raises when it reads. What it is told it notes."""

    def __init__(self) -> None:
        self._outbox = Outbox()

    def receive(self, link: int, data: bytes, now: int) -> None:
        """A peer's bytes."""
        raise TypeError("'int' object is not iterable")

    def tell(self, note: Any, now: int) -> None:
        """A guard has caught something."""
        self._outbox.note(note)

    def take(self) -> Effects:
        """Whatever was noted."""
        return self._outbox.empty(None)

    def __getattr__(self, name: str) -> Any:
        if name == "shortcut":
            raise AttributeError(name)
        return lambda *details: None


def test_a_machine_that_raises_or_notes_an_error_is_noticed() -> None:
    driver = Driver()
    odd = Seat("here", "odd", Odd())
    driver.listen(("here", 1), odd, "main", secure=False)
    wire = driver.dial("peer", ("here", 1), None)
    driver.settle()
    driver.send(wire, b"x")
    with pytest.raises(FaultError, match="odd at here raised TypeError"):
        driver.settle()
    driver.tell(odd, ReloadFailed(["why"]))
    with pytest.raises(FaultError, match="notes an error"):
        driver.settle()


@pytest.mark.parametrize(
    ("frame", "harm"),
    [
        (event(SECRETS[0], "canary/1", 1, b"forged"), "the canary published"),
        (subscribe(1, "canary/#"), "heard what is the canary's"),
    ],
    ids=["published", "heard"],
)
def test_a_wrong_delivery_is_noticed(frame: bytes, harm: str) -> None:
    target = NetworkTarget(rules=())  # without its access rules, everybody may use the canary's topics
    given = Input("frames", [Step(0, "dial", word="main"), Step(0, "bytes", hello(SECRETS[0]) + frame)])
    with pytest.raises(FaultError, match=harm):
        deque(map(target.shoot, [given] * 6), maxlen=0)  # the canary does not sing after each input


def test_a_request_without_an_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = put_together(grammar.SERVICE, 1, b"{}", b"mute")
    target = NetworkTarget()
    monkeypatch.setattr(network_target, "MUTE", "nobody")  # from here on it has to answer
    target.shoot(Input("requests", [Step(0, "dial", word="main"), Step(0, "bytes", hello(SECRETS[0]) + asked)]))
    with pytest.raises(FaultError, match="mute never answered"):
        target.finish()


@pytest.mark.slow
def test_what_did_harm_is_kept_in_few_steps_and_can_be_shot_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_target, "RULES", ())
    outcome = fuzz.shoot_round(1, 0, 200, corpus=tmp_path)
    (fault,) = outcome.faults
    (file,) = tmp_path.glob("*.txt")
    assert f"--replay {file}" in fault
    kept = Input.read(file.read_text())
    assert len(kept.steps) <= 6
    assert shrinking.fault_of(kept) is not None
