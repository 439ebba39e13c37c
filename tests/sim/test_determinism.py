"""Determinism: seed and scenario determine a run to the last byte; anything else that changes changes the digest."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from heliograph.sim.run import Result, play
from heliograph.sim.scenario import Fault, Scenario
from heliograph.sim.scenario_files import load
from heliograph.sim.world import World
from tests.sim.machines import CALM, Echo, add, dial, run, write

PROGRAM = """
from heliograph.sim.run import play
from heliograph.sim.scenario_files import load
print(*(play(short, 7).digest for short in map(load, ("storm", "access"))))
"""


def digest_in_a_process(hash_seed: str, kernels: str = "auto") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "HELIOGRAPH_KERNELS": kernels}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def short(name: str, duration_s: float = 3.0) -> Scenario:
    scenario = load(name)
    faults = tuple(fault for fault in scenario.fault if fault.at_s <= duration_s)
    return replace(scenario, scenario=replace(scenario.scenario, duration_s=duration_s, settle_s=1.0), fault=faults)


def played(scenario: Scenario, seed: int = 1) -> Result:
    return play(scenario, seed, keep_journal=True)


def published(result: Result) -> list[tuple]:
    return [(entry[0], entry[3], entry[4]) for entry in result.journal.entries if entry[2] == "published"]


@pytest.mark.slow
@pytest.mark.req("O7")
def test_a_run_is_the_same_in_another_process_with_another_hash_seed_and_without_compiled_parts() -> None:
    first, second, python = digest_in_a_process("1"), digest_in_a_process("4242"), digest_in_a_process("1", "python")

    assert first == second == python
    assert len(first.split()) == 2


@pytest.mark.req("O7")
def test_a_run_repeated_in_one_process_is_the_same_to_the_last_journal_line() -> None:
    first, second = played(short("storm")), played(short("storm"))

    assert first.digest == second.digest
    assert list(first.journal.lines()) == list(second.journal.lines())


def test_another_seed_is_another_run() -> None:
    assert played(short("quiet"), 1).digest != played(short("quiet"), 2).digest


def test_a_microsecond_of_delay_changes_the_digest() -> None:
    scenario = short("quiet")
    later = replace(scenario, network=replace(scenario.network, delay_ms=scenario.network.delay_ms + 0.001))

    assert played(scenario).digest != played(later).digest


def echoed(payload: bytes, delay_ms: float = 1.0) -> str:
    world = World(1, network=replace(CALM, delay_ms=delay_ms))
    add(world, "echo", Echo, listens=True)
    caller = add(world, "caller")
    dial(world, caller, "echo")
    write(world, caller, payload)
    run(world, 1)
    return world.digest.hex()


def test_one_byte_of_a_payload_or_one_microsecond_changes_the_digest() -> None:
    assert echoed(b"x" * 100) == echoed(b"x" * 100)
    assert echoed(b"x" * 100) != echoed(b"x" * 99 + b"y")
    assert echoed(b"x" * 100) != echoed(b"x" * 100, 1.001)


@pytest.mark.req("O7")
def test_a_fault_more_shifts_neither_the_workload_nor_the_other_faults() -> None:
    scenario = short("faults")
    more = replace(scenario, fault=(*scenario.fault, Fault(kind="clock_step", target="a", at_s=1.2, step_ms=1)))
    first, second = played(scenario), played(more)

    def faults(result: Result) -> list[tuple]:
        return [(entry[0], entry[3], entry[4]) for entry in result.journal.entries if entry[2] == "fault"]

    assert first.digest != second.digest
    assert published(first) == published(second)
    assert [fault for fault in faults(second) if fault[0] != 1_200_000_000] == faults(first)


def test_keeping_the_whole_journal_changes_nothing() -> None:
    scenario = short("churn")

    assert play(scenario, 3).digest == play(scenario, 3, keep_journal=True).digest
