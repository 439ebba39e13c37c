"""More that goes wrong: directories that lie, brokers that die after they answered, partitions.

One test per seed: a failing one is replayed by its node id, which ends in ``[seed]``.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from msgspec import structs

from heliograph.broker.config import DEFAULT_PORT
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import DIRECTORY_PORT, ResponderConfig
from heliograph.discovery.brokers.messages import BrokerAdvertisement
from heliograph.discovery.brokers.status import UsageSample
from heliograph.errors import Reason
from tests.discovery.brokers.stage import GIB, Plan, Stage
from tests.discovery.brokers.test_faults import Case, in_time

SEEDS = range(1, 41)


@pytest.mark.req("B13")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_directory_full_of_stale_and_forged_advertisements_still_leads_to_a_broker(seed: int) -> None:
    random = Random(seed)
    case = Case(random.choice(("alone", "unlinked", "star")), seed)
    stage = case.stage(loss=0.05)
    stranger = stage.stranger()
    forged = [
        BrokerAdvertisement(
            random.choice(("b0", f"ghost{number}")),
            incarnation=99,
            number=1,
            lifetime_s=300,
            host=random.choice(("nowhere", "client-raw", "")),
            ports={"udp": DEFAULT_PORT, "tcp": DEFAULT_PORT},
            island=random.choice(("", "lies")),
        )
        for number in range(20)
    ]
    for directory in ("bdn", "bdn2"):
        stranger.send((directory, DIRECTORY_PORT), *(messages.write(one, b"!" * 16) for one in forged))
    dead = random.choice(case.plans()).name if len(case.plans()) > 2 else ""
    if dead and dead != "b0":
        stage.world.crash(stage.world.hosts[dead])  # what the directories know of it is stale now
    result = stage.find(case.config)
    assert result.proven, result.tried
    assert result.broker in {plan.name for plan in case.plans()} - ({dead} if dead != "b0" else set())
    assert in_time(result, case.config)


@pytest.mark.req("B13")
@pytest.mark.parametrize("seed", SEEDS)
def test_while_brokers_die_between_their_answer_and_the_ping_a_search_ends_well_and_in_time(seed: int) -> None:
    random = Random(seed)
    case = Case(random.choice(("unlinked", "star", "group")), seed)
    stage = case.stage()
    search = stage.search(case.config, wait=False)
    while search.result is None and not search.report("overview")["candidates"]:
        stage.run(0.001)
    names = [plan.name for plan in case.plans()]
    spared = random.choice(names)
    for name in names:
        if name != spared:
            stage.world.crash(stage.world.hosts[name])
    while search.result is None:
        stage.run(0.05)
    result = search.result
    assert result.found, result.tried
    assert in_time(result, case.config)


@pytest.mark.req("B16")
@pytest.mark.parametrize("seed", SEEDS)
def test_of_brokers_at_one_distance_the_newly_added_idle_one_is_chosen(seed: int) -> None:
    busy = UsageSample(600, 8 * GIB, 6 * GIB)
    near_ms = Random(seed).uniform(1, 50)
    group = ResponderConfig()
    stage = Stage([Plan(f"b{number}", near_ms, (), group, busy) for number in range(4)], seed=seed, far_ms=near_ms)
    stage.add_broker(Plan("new", near_ms, ("b0",), group, structs.replace(busy, cpu_permille=10, memory_used=GIB)))
    stage.run(2)
    assert stage.find(Case("group", seed).config).broker == "new"


@pytest.mark.parametrize("seed", SEEDS)
def test_cut_off_from_all_there_is_a_reason_in_time(seed: int) -> None:
    case = Case("star", seed)
    stage = case.stage()
    search = stage.search(replace(case.config, timeout_ms=500), wait=False)
    stage.block("*", "client*")
    while search.result is None:
        stage.run(0.05)
    assert search.result.reason is Reason.BROKER_NOT_FOUND
    assert search.result.times_ms["total"] <= 1_000
