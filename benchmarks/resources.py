"""resources: dynamic answers and updates over a chain of brokers, large tables, and what similar requests save.

In:    four brokers in a chain on this machine; etcd and zenoh routers where they are installed; tables in this process.
Out:   ms per answer and per update, beside the peers'; ms and us per question to large tables; registrations per
       second; messages at 80 % similarity as a share of normal's.
State: none.
Not here: the paper's experiments (heliograph evaluate resources).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import heliograph
from benchmarks import machine
from benchmarks.field import say
from benchmarks.peers.etcd import Etcd
from benchmarks.peers.network import Network
from benchmarks.peers.ours import Heliograph
from benchmarks.peers.server import Server
from benchmarks.peers.zenoh import Zenoh, settings
from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.messages import AdvertisedResource, AdvertisementsTold, ResourceState
from heliograph.discovery.resources.places import Places
from heliograph.discovery.resources.standing import StandingForwarding
from heliograph.discovery.resources.table import AdvertisementTable
from heliograph.evaluation.resources.sharing import SharingPlan, SharingStage
from heliograph.evaluation.resources.workload import BALANCED, UNIFORM

SAYS = "resource discovery over a chain of brokers, in large tables, and by similarity"
LIMITS = {
    "dynamic_answer_ms": 3.0,
    "continuous_update_ms": 2.0,
    "static_answer_ms": 1.0,
    "update_match_us": 50.0,
    "similarity_subscriptions": 0.5,
    "similarity_publications": 0.5,
}
LEAST = {"registrations_per_s": 1_000.0}
CHAIN = ("a", "b", "c", "d")
LINKS = (("a", "b"), ("b", "c"), ("c", "d"))
AT_ONCE = 64  # registrations under way
HOW = [
    "dynamic answer: a client at the last of four brokers asks for a resource at the first; normal, nothing cached",
    "continuous update: from the owner's call at the first broker until the watcher at the last has the change",
    "registrations: 64 under way at the first broker, until the last one knows all of them",
    "etcd: one server, its HTTP gateway; range of one key, and put until the watch tells it",
    "zenoh: a get through as many routers, answered by a queryable at the other end",
    "static answer: the median question with about ten results among 100,000 resources, without writing them out",
    "update: one state matched with 10,000 continuous requests, of which a few want it",
    "similarity: 1000 resources and requests at 80 % on 24 simulated brokers, as a share of normal's messages",
]


def run(quick: bool) -> dict[str, Any]:
    """Measure."""
    facts = machine.facts()
    rounds = 50 if quick else 300
    ours = asyncio.run(_chain(rounds, 1_000 if quick else 5_000))
    ours |= _static(100_000, rounds) | _standing(10_000, rounds * 4) | _sharing()
    met = {name: ours[name] <= limit for name, limit in LIMITS.items()}
    met |= {name: ours[name] >= least for name, least in LEAST.items()}
    return {
        "name": "resources",
        "ours": ours,
        "peers": {"etcd": _etcd(rounds), "zenoh": _zenoh(rounds)},
        "limits": LIMITS,
        "least": LEAST,
        "met": met,
        "quick": quick,
        "how": HOW,
        "machine": facts,
    }


def show(result: dict[str, Any]) -> str:
    """One line per figure, with its limit."""
    bounds = {name: f"at most {limit:g}" for name, limit in result["limits"].items()}
    bounds |= {name: f"at least {least:g}" for name, least in result["least"].items()}
    lines = [
        f"{name:28}{value:>12}"
        + (f"  ({bounds[name]}: {'yes' if result['met'][name] else 'NO'})" if name in bounds else "")
        for name, value in result["ours"].items()
    ]
    for name, peer in result["peers"].items():
        lines += [f"{name + ' ' + what:28}{value:>12}" for what, value in peer.items()]
    return "\n".join(lines)


# -- four brokers -----------------------------------------------------------------------------------------------------


async def _chain(rounds: int, registrations: int) -> dict[str, Any]:
    with ExitStack() as stack:
        say("four brokers in a chain")
        network = stack.enter_context(Network(Heliograph(), CHAIN, LINKS, machine.cores()))
        first, last = (f"127.0.0.1:{network.port(name)}" for name in (CHAIN[0], CHAIN[-1]))
        async with await heliograph.connect(first) as owner, await heliograph.connect(last) as seeker:
            return await _measure(owner, seeker, rounds, registrations)


async def _measure(owner: Any, seeker: Any, rounds: int, registrations: int) -> dict[str, Any]:
    resource = await owner.register_resource("memory <= 64 and load >= 0", values={"memory": 8, "load": 1})
    await _known(seeker, 1)
    say("dynamic answers")

    async def ask() -> None:
        answer = await seeker.discover_resources("memory >= 2", deliver="normal", max_age=0)
        assert answer.complete
        assert len(answer) == 1, "the one resource is found"

    found: dict[str, Any] = {"dynamic_answer_ms": await _times(rounds, ask)}
    say("continuous updates")
    async with seeker.watch_resources("memory >= 2") as watch:
        await watch.next(10)
        number = 1

        async def update() -> None:
            nonlocal number
            number += 1
            began = asyncio.create_task(resource.update({"memory": 8, "load": number}))
            change = await watch.next(10)
            assert change.values["load"] == number
            waiting.append(began)

        waiting: list[asyncio.Task[None]] = []
        found["continuous_update_ms"] = await _times(rounds, update)
        await asyncio.gather(*waiting)
    say("registrations")
    before = (await seeker.ask("resources", {"do": "tables"}))["known"]
    limit = asyncio.Semaphore(AT_ONCE)

    async def register(number: int) -> None:
        async with limit:
            await owner.register_resource(attributes={"serial": number, "kind": "bench"}, model="static", lease=600)

    began = perf_counter()
    await asyncio.gather(*(register(number) for number in range(registrations)))
    await _known(seeker, before + registrations)
    found["registrations_per_s"] = round(registrations / (perf_counter() - began))
    return found


async def _known(client: Any, count: int) -> None:
    while (await client.ask("resources", {"do": "tables"}))["known"] < count:
        await asyncio.sleep(0.005)


async def _times(rounds: int, work: Callable[[], Awaitable[None]]) -> float:
    for _ in range(5):
        await work()
    took = []
    for _ in range(rounds):
        begin = perf_counter()
        await work()
        took.append((perf_counter() - begin) * 1_000)
    return round(median(took), 3)


# -- tables -----------------------------------------------------------------------------------------------------------


def _static(count: int, rounds: int) -> dict[str, Any]:
    say(f"a table of {count:,} static resources")
    random, table = Random(1), AdvertisementTable(count)
    for host in range(100):
        add = [
            AdvertisedResource(id, True, f"cpu = {random.randint(1, 64)} and memory = {random.randint(1, count)}", 1)
            for id in range(host, count, 100)
        ]
        for start in range(0, len(add), 64):
            more = start + 64 < len(add)
            table.learn(AdvertisementsTold(host, f"h{host}", "main", host, 1, 1, True, more, add[start : start + 64]))
    wanted = [random.randint(1, count - 11) for _ in range(rounds)]
    questions = [read_condition(f"memory >= {low} and memory <= {low + 10}") for low in wanted]
    took, rows = [], 0
    for question in questions:
        begin = perf_counter()
        rows += len(table.overlapping_static(question))
        took.append((perf_counter() - begin) * 1_000)
    return {"static_answer_ms": round(median(took), 3), "static_answer_rows": round(rows / rounds, 1)}


def _standing(count: int, rounds: int) -> dict[str, Any]:
    say(f"{count:,} continuous requests")
    random, told = Random(1), []
    standing = StandingForwarding(
        AdvertisementTable(10),
        Places(),
        count,
        send=lambda link, message: None,
        tell=lambda id, state: told.append(id),
        stirred=lambda id: None,
        emptied=lambda id, host: None,
    )
    for number in range(count):
        low = random.randint(1, 100_000)
        where = f"kind = {number % 50} and memory >= {low} and memory <= {low + 2_000}"
        standing.add(0, (1, 1, number), where)
    before: dict[str, Any] = {"kind": 1, "memory": 50_000}
    took = []
    for number in range(rounds):
        values: dict[str, Any] = {"kind": random.randrange(50), "memory": random.randint(1, 100_000)}
        state = ResourceState(1, 1, number, 7, 1, "r", 0, before, values)
        begin = perf_counter()
        standing.state(None, state)
        took.append((perf_counter() - begin) * 1e6)
        before = dict(values)
    return {"update_match_us": round(median(took), 1), "update_told": round(len(told) / rounds, 2)}


def _sharing() -> dict[str, Any]:
    say("80 % similarity, normal and by similarity")
    stage = SharingStage(SharingPlan(levels=(80,)), 1)
    network = stage.network(BALANCED)
    normal, shared = (stage.run(network, 80, UNIFORM, UNIFORM, how) for how in ("normal", "similarity"))
    assert normal["wrong"] == shared["wrong"] == 0, "every answer is right"
    return {
        f"similarity_{name}": round(shared[name] / normal[name], 3)
        for name in ("subscriptions", "publications", "matchings", "results_hops", "time_ms")
    }


# -- peers ------------------------------------------------------------------------------------------------------------


def _etcd(rounds: int) -> dict[str, Any]:
    system = Etcd()
    reason = system.absent()
    if reason is not None:
        return {"absent": reason}
    say("etcd")
    with Server(system, machine.cores()) as server:
        return {"version": system.version(), **system.measure(server.port, rounds)}


def _zenoh(rounds: int) -> dict[str, Any]:
    system = Zenoh()
    reason = system.absent()
    if reason is not None:
        return {"absent": reason}
    say("zenoh")
    import zenoh  # type: ignore[import-untyped, import-not-found, unused-ignore]

    def session(port: int) -> Any:
        return zenoh.open(zenoh.Config.from_json5(settings("client", None, (port,))))

    with Network(system, CHAIN, LINKS, machine.cores()) as network:
        far, near = session(network.port(CHAIN[0])), session(network.port(CHAIN[-1]))
        with far, near:
            answering = far.declare_queryable("machine/1", lambda query: query.reply("machine/1", b'{"memory": 8}'))
            took = []
            deadline = perf_counter() + 20
            while not [reply for reply in near.get("machine/*") if reply.ok]:
                assert perf_counter() < deadline, "zenoh's routers do not lead to the queryable"
            for _ in range(rounds):
                begin = perf_counter()
                replies = list(near.get("machine/*"))
                took.append((perf_counter() - begin) * 1_000)
                assert len(replies) == 1
            answering.undeclare()
    return {"version": system.version(), "get_ms": round(median(took), 3)}
