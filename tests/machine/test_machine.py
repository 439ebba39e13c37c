"""The outbox and the timers that every machine has."""

from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.machine import Dial, Outbox, Timers


def test_an_emptied_outbox_is_the_same_outbox_with_nothing_in_it() -> None:
    outbox = Outbox()
    writes = outbox.writes
    writes.append((1, [b"x"]))
    outbox.hang_up(1, Reason.GOODBYE)
    ticket = outbox.dial(Dial("localhost", 1))

    effects = outbox.empty(wake_at=7)

    assert effects.writes == [(1, [b"x"])]
    assert effects.hangups == [(1, Reason.GOODBYE)]
    assert [given for given, _ in effects.dials] == [ticket]
    assert effects.wake_at == 7
    assert not outbox.empty(None).writes


def test_tickets_are_never_given_twice() -> None:
    outbox = Outbox()
    tickets = [outbox.ticket() for _ in range(100)]
    assert len(dict.fromkeys(tickets)) == 100


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50), st.booleans()), max_size=60))
def test_timers_fire_each_key_once_in_order_of_time(plan: list[tuple[int, int, bool]]) -> None:
    timers = Timers()
    expected: dict[int, int] = {}
    fired: list[tuple[int, int]] = []
    for key, at, cancelled in plan:
        if cancelled:
            timers.cancel(key)
            expected.pop(key, None)
        else:
            timers.set(key, at, lambda now, key=key: fired.append((now, key)))
            expected[key] = at
    assert timers.next() == min(expected.values(), default=None)
    for now in range(52):
        timers.run(now)
    assert sorted(key for _, key in fired) == sorted(expected)
    assert all(now == expected[key] for now, key in fired)
    assert timers.next() is None


def test_a_timer_that_sets_itself_for_now_does_not_spin() -> None:
    timers = Timers()
    count = []

    def again(now: int) -> None:
        count.append(now)
        timers.set("again", now, again)

    timers.set("again", 5, again)
    timers.run(5)
    assert count == [5]
    assert timers.next() == 5


def test_keys_moved_often_do_not_grow_the_heap() -> None:
    timers = Timers()
    for at in range(10_000):
        timers.set("alive", at, lambda now: None)
    assert len(timers._heap) < 200
    assert timers.next() == 9_999


def test_keys_moved_often_still_fire_in_the_order_of_their_times() -> None:
    timers = Timers()
    fired: list[int] = []
    due: dict[int, int] = {}
    for moved in range(4 * 20 + 1):  # the last move is the one after which stale entries are dropped
        key = moved % 20
        due[key] = 100 * (moved // 20) + 7 * key % 20
        timers.set(key, due[key], lambda now, key=key: fired.append(key))
    assert len(timers._heap) == 20
    for now in range(500):
        timers.run(now)
    assert fired == sorted(due, key=lambda key: due[key])
