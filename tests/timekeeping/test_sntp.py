"""NTP servers: questions, answers that are believed, and everything else that may come to a socket."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.machine import Outbox
from heliograph.timekeeping.sntp import ANSWER_MODE, PACKET, SOCKET, Servers, ntp_stamp, unix_ns

pytestmark = pytest.mark.req("N13")

S = 1_000_000_000
MS = 1_000_000
TIME = 1_750_000_000 * S
ONE, TWO, THREE = ("192.0.2.1", 123), ("192.0.2.2", 123), ("192.0.2.3", 123)


class Talk:
    """The servers of a broker, and what it asked them last."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self.outbox = Outbox()
        self.servers = Servers(addresses, 64 * S, 1, self.outbox)
        self.nonces: dict[tuple[str, int], int] = {}

    def ask(self, now: int) -> int | None:
        at = self.servers.ask(now)
        self.nonces.clear()
        for socket, address, data in self.outbox.datagrams:
            assert (socket, len(data), data[0]) == (SOCKET, 48, 0x23)
            self.nonces[address] = PACKET.unpack(data)[-1]
        self.outbox.datagrams.clear()
        return at


def answer(
    nonce: int,
    time_ns: int = TIME,
    *,
    held: int = 0,
    stratum: int = 2,
    flags: int = 0x20 | ANSWER_MODE,
    word: bytes = b"",
) -> bytes:
    """What a server sends that got a question and held it for a while; its root is 1/64 s wrong at most."""
    stamps = (ntp_stamp(time_ns - held), ntp_stamp(time_ns))
    return PACKET.pack(flags, stratum, 6, -20, 0, 1 << 10, word, 0, nonce, *stamps)


def test_an_answer_gives_the_time_with_half_the_way_as_its_error() -> None:
    talk = Talk(ONE)
    talk.ask(10 * S)
    sample = talk.servers.receive(answer(talk.nonces[ONE], held=30 * MS), 10 * S + 50 * MS)

    assert sample is not None
    assert abs(sample.time_ns - (TIME + 10 * MS)) <= 2  # 20 ms were spent on the way
    assert 10 * MS <= sample.error_ns - S // 64 <= 10 * MS + 10_000
    assert (sample.at, sample.stratum) == (10 * S + 50 * MS, 3)


def test_questions_show_no_clock_and_come_quickly_at_first() -> None:
    talk = Talk(ONE)
    times, nonces = [0], []
    for _ in range(6):
        at = talk.ask(times[-1])
        assert at is not None
        times.append(at)
        nonces.append(talk.nonces[ONE])
    gaps = [(later - sooner) / S for sooner, later in pairwise(times)]

    assert len(set(nonces)) == 6
    assert gaps[:3] == [2, 2, 2]
    assert all(57 <= gap <= 71 for gap in gaps[3:])


@pytest.mark.parametrize(
    "flaw",
    ["another nonce", "twice", "too late", "from the future", "alarm", "a client", "stratum 16", "short"],
)
def test_what_is_no_good_answer_is_ignored(flaw: str) -> None:
    talk = Talk(ONE)
    talk.ask(0)
    nonce, now = talk.nonces[ONE], 20 * MS
    data = answer(nonce)
    if flaw == "another nonce":
        data = answer(nonce ^ 1)
    elif flaw == "twice":
        assert talk.servers.receive(data, now) is not None
    elif flaw == "too late":
        now = 6 * S
    elif flaw == "from the future":
        data = answer(nonce, held=30 * MS)
    elif flaw == "alarm":
        data = answer(nonce, flags=0xE4)
    elif flaw == "a client":
        data = answer(nonce, flags=0x23)
    elif flaw == "stratum 16":
        data = answer(nonce, stratum=16)
    elif flaw == "short":
        data = data[:47]

    assert talk.servers.receive(data, now) is None


def test_a_server_that_wants_to_be_left_alone_is() -> None:
    talk = Talk(ONE, TWO)
    talk.ask(0)
    talk.servers.receive(answer(talk.nonces[ONE], stratum=0, word=b"DENY"), MS)
    talk.ask(2 * S)
    assert list(talk.nonces) == [TWO]
    talk.servers.receive(answer(talk.nonces[TWO], stratum=0, word=b"RSTR"), MS)
    assert talk.ask(4 * S) is None


def test_a_server_that_is_asked_too_often_is_asked_less_often() -> None:
    talk = Talk(ONE)
    talk.ask(0)
    talk.servers.receive(answer(talk.nonces[ONE], stratum=0, word=b"RATE"), MS)
    asked = 0
    for number in range(1, 21):
        talk.ask(number * 64 * S)
        asked += bool(talk.nonces)
    assert 8 <= asked <= 12


def test_a_server_that_disagrees_with_most_others_is_not_believed() -> None:
    talk = Talk(ONE, TWO, THREE)
    talk.ask(0)
    heard = [
        talk.servers.receive(answer(talk.nonces[address], time_ns), 2 * MS)
        for address, time_ns in ((THREE, TIME + 60 * S), (ONE, TIME), (TWO, TIME + MS))
    ]

    assert [sample is not None for sample in heard] == [False, False, True]  # one alone is not believed either


def test_samples_that_grew_old_agree_as_far_as_clocks_may_have_drifted() -> None:
    """Their errors sum up to 33 ms when they are new; in 150 s two clocks drift apart by 15 ms at most."""
    for apart_ms, agrees in ((30, True), (45, True), (50, False)):
        talk = Talk(ONE, TWO)
        talk.ask(0)
        assert talk.servers.receive(answer(talk.nonces[ONE]), MS) is not None
        talk.ask(150 * S)
        later = TIME + 150 * S + apart_ms * MS
        assert (talk.servers.receive(answer(talk.nonces[TWO], later), 150 * S + MS) is not None) == agrees


@given(st.integers(0, 4_000_000_000 * S))
def test_stamps_are_read_as_they_are_written_also_after_2036(time_ns: int) -> None:
    assert 0 <= time_ns - unix_ns(ntp_stamp(time_ns)) <= 1


@given(st.binary(max_size=100), st.booleans(), st.integers(0, 10 * S))
def test_any_bytes_give_a_sane_sample_or_none(data: bytes, known: bool, now: int) -> None:
    talk = Talk(ONE)
    talk.ask(0)
    if known and len(data) >= 48:
        data = data[:24] + talk.nonces[ONE].to_bytes(8, "big") + data[32:]
    sample = talk.servers.receive(data, now)
    assert sample is None or (0 <= sample.error_ns <= S and 1 < sample.stratum <= 16)
