"""Simulated vaults: what outlives a crash, what faults do to them, and that the seed determines it all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.sim.faults import Faults
from heliograph.sim.scenario import Fault
from heliograph.sim.world import World
from heliograph.vault import Append, Damage, Put, Read, VaultFailed, VaultOpened
from tests.sim.machines import run
from tests.vaults import subjects
from tests.vaults.subjects import Keeper, SimSubject, dump

APPEND = Append("log", b"record", 1, 0, 0)


def positions(subject: SimSubject) -> list[int]:
    return [run.position for run in subject.read(Read("log")).runs]  # type: ignore[union-attr]


def test_what_was_done_outlives_every_crash_and_what_was_not_is_there_as_a_beginning() -> None:
    survivors: Counter[int] = Counter()
    for seed in range(60):
        subject = SimSubject(seed=seed)
        subject.commit([[APPEND], [APPEND]])
        subject.crash([[APPEND, Put("last", b"%d" % n)] for n in range(3)])
        kept = positions(subject)
        assert kept == list(range(len(kept)))
        assert len(kept) >= 2
        keys = dump(subject)["keys"]
        assert keys == ([("last", b"%d" % (len(kept) - 3))] if len(kept) > 2 else [])
        survivors[len(kept) - 2] += 1
    assert set(survivors) == {0, 1, 2, 3}


def test_a_host_that_ends_in_order_finishes_what_is_under_way() -> None:
    subject = SimSubject()
    subject.ask(lambda outbox: [outbox.commit([APPEND]) for _ in range(3)])
    subject.reopen()
    assert positions(subject) == [0, 1, 2]


def test_a_new_disk_is_empty_and_one_that_is_refused_says_why() -> None:
    subject = SimSubject()
    subject.commit([[APPEND]])
    subject.world.crash(subject.host)
    subject.world.disks.wipe(subject.host)
    subject._start()
    assert positions(subject) == []

    refused = VaultFailed("v", Reason.VAULT_DAMAGED, "as the test says")
    subject.world.crash(subject.host)
    subject.disk.refused = refused
    subject._start()
    assert subject.machine.of("vault") == [("vault", refused)]
    tickets = subject.ask(lambda outbox: [outbox.commit([APPEND]), outbox.read(Read("log"))])
    assert subject.answers(tickets) == [Reason.VAULT_DAMAGED] * 2


def test_a_machine_is_told_that_its_vault_is_open() -> None:
    subject = SimSubject()
    subject.commit([[APPEND]])
    subject.crash([])
    assert subject.machine.of("vault") == [("vault", VaultOpened("v", 6))]


class Stubborn(Keeper):
    """Asks again, at once, for a commit that failed; and knows what it had heard when it asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, int] = {}  # ticket -> how many inputs came before

    def ask(self, key: str) -> None:
        self.asked[self.outbox.commit([Put(key, b"x")])] = len(self.inputs)

    def failed(self, ticket: int, reason: Reason, now: int) -> None:
        super().failed(ticket, reason, now)
        if len(self.of("failed")) < 100:
            self.ask(f"again {ticket}")


def test_when_a_commit_fails_so_do_those_asked_for_before_the_machine_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of commits meets a disk that is full for a while."""
    monkeypatch.setattr(subjects, "Keeper", Stubborn)
    dragged_along = 0
    for seed in range(25):
        subject = SimSubject(seed=seed)
        subject.host.service_ns = 400_000  # busy: several inputs come before a take
        for number in range(60):
            subject.host.tell(subject.host.seats[0], lambda machine, now, number=number: machine.ask(f"{number}"))
            subject.disk.full = int(10 <= number < 30)
            run(subject.world, 0.000_5)
        run(subject.world, 1)
        machine: Any = subject.machine
        heard = {each[1]: n for n, each in enumerate(machine.inputs) if each[0] in ("done", "failed")}
        assert list(heard) == sorted(machine.asked), "each is answered, in order"
        failed = [ticket for _, ticket, _ in machine.of("failed")]
        aware_since = -1  # the machine heard of a failure when it had had so many inputs
        for ticket in failed:
            if machine.asked[ticket] > aware_since:  # it knew of all failures before: this is another one
                aware_since = heard[ticket]
                unaware = [n for n, inputs in machine.asked.items() if n > ticket and inputs <= aware_since]
                assert set(unaware) <= set(failed)
                dragged_along += len(unaware)
    assert dragged_along > 100


def a_world_with_faults(*plan: Fault, seed: int = 3) -> tuple[SimSubject, Faults]:
    subject = SimSubject(seed=seed)
    return subject, Faults(subject.world, plan, duration_s=100)


def test_a_full_disk_takes_nothing_until_there_is_room() -> None:
    subject, faults = a_world_with_faults(Fault(kind="disk_full", target="keep*", at_s=5, for_s=10))
    subject.commit([[APPEND]])
    run(subject.world, 5)
    tickets = subject.ask(lambda outbox: [outbox.commit([APPEND])])
    assert subject.answers(tickets) == [Reason.VAULT_FULL]
    assert positions(subject) == [0]
    run(subject.world, 10)
    (done,) = subject.commit([[APPEND]])
    assert done.positions == (1,)
    assert faults.count("disk_full") == 1


def test_a_slow_disk_is_slow_for_a_while() -> None:
    subject, _ = a_world_with_faults(Fault(kind="disk_slow", at_s=5, for_s=60, factor=50))
    run(subject.world, 6)
    assert subject.disk.slow == 50
    run(subject.world, 70)
    assert subject.disk.slow == 1


def test_a_torn_record_was_never_acknowledged_and_is_told_as_damage() -> None:
    torn = 0
    for seed in range(30):
        subject, _ = a_world_with_faults(Fault(kind="disk_torn", at_s=4, for_s=1), seed=seed)
        subject.commit([[APPEND]])
        run(subject.world, 4 - subject.world.loop.now / 1e9 - 0.001)
        subject.ask(lambda outbox: [outbox.commit([APPEND]) for _ in range(3)])
        acknowledged = len(subject.machine.of("done"))
        run(subject.world, 5)
        assert subject.host.incarnation == 2
        found = subject.read(Read("log")).runs  # type: ignore[union-attr]
        damaged = [each.position for each in found if isinstance(each, Damage)]
        assert all(position >= acknowledged for position in damaged)
        assert subject.world.journal.counts["damaged"] == len(damaged)
        torn += len(damaged)
    assert torn > 10


def test_a_flipped_record_is_told_as_damage_with_its_positions() -> None:
    subject, _ = a_world_with_faults(Fault(kind="disk_flip", at_s=3))
    subject.commit([[APPEND]] * 9)
    run(subject.world, 4)
    found = subject.read(Read("log")).runs  # type: ignore[union-attr]
    assert [each.position for each in found] == list(range(9))
    assert [each.count for each in found if isinstance(each, Damage)] == [1]


def test_faults_of_disks_strike_only_hosts_that_have_one() -> None:
    world = World(1)
    faults = Faults(world, (Fault(kind="disk_full", at_s=1),), duration_s=5)
    run(world, 2)
    assert faults.count("disk_full") == 0


def test_a_run_with_vaults_is_determined_by_its_seed() -> None:
    def digest(seed: int) -> tuple[str, Any]:
        fault = Fault(kind="disk_torn", at_s=2, for_s=1, within_s=0.5, times=3, every_s=5)
        subject, _ = a_world_with_faults(fault, seed=seed)

        def ask(machine: Keeper, now: int) -> None:
            machine.outbox.commit([APPEND, Put("now", b"%d" % now)])

        for _ in range(400):
            if subject.host.up:
                subject.host.tell(subject.host.seats[0], ask)
            run(subject.world, 0.05)
        assert subject.host.incarnation == 4
        return subject.world.digest.hex(), dump(subject)

    assert digest(5) == digest(5)
    assert digest(5) != digest(6)
