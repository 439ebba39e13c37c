"""Runs in which resources are watched from several brokers, while a broker is killed and started again.

In:    a seed and a folder.
Out:   a Watched: what was told, and what is wrong.
State: the processes of one network and of one program at a time.
Not here: the program (programs/resource_users.py), what is right (watch_oracle.py).

Owners act before, during and after a restart; during it only those at other brokers. Before the watches begin there are
resources already.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from random import Random

from tests.independent.processes import Processes, Program, common_words, program
from tests.independent.resource_history import CONDITIONS
from tests.independent.resource_workload import Owner, Step
from tests.independent.runs import TRUSTED_MS
from tests.independent.watch_oracle import Watched, Window, judge

OWNERS, WATCHERS, WATCHES = 3, 3, 8
CALLS = {"first": 4, "before": 14, "during": 10, "after": 10}
PAUSE_S = 0.12
AWAY_S = (0.1, 2.0)


def with_watches(seed: int, folder: Path) -> Watched:
    draw = Random(f"watches {seed}")
    brokers = [f"b{number}" for number in range(draw.randint(3, 5))]
    border = draw.choice((len(brokers), draw.randint(1, len(brokers) - 1)))  # from here on they are another cluster
    commands = {}
    for place, name in enumerate(brokers):
        near = brokers[border:place] if place > border else brokers[:place]  # so that each cluster is connected
        links = draw.sample(near, min(len(near), draw.randint(1, 2)))
        words = common_words(name, links, "c0" if place < border else "c1")
        commands[name] = ["broker", "run", *words, "--no-discovery"]
    with Processes(folder, commands, suspect_ms=TRUSTED_MS) as nodes:
        return asyncio.run(_play(nodes, brokers, draw))


async def _play(nodes: Processes, brokers: list[str], draw: Random) -> Watched:
    await nodes.ready()
    owners = [Owner(f"owner{number}", draw, always_values=True) for number in range(OWNERS)]
    watchers = [f"watcher{number}" for number in range(WATCHERS)]
    places = {actor: draw.choice(brokers) for actor in (*(owner.name for owner in owners), *watchers)}
    actors = {actor: f"heliograph://127.0.0.1:{nodes.nodes[place].port}" for actor, place in places.items()}
    watches = {
        f"watch{number}": {
            "actor": draw.choice(watchers),
            "where": draw.choice(CONDITIONS).text,
            "model": draw.choice(("static", "dynamic", "dynamic")),
        }
        for number in range(WATCHES)
    }
    users = Program(program("resource_users"), nodes.folder, "users", actors=actors)
    kept = Watched()
    try:
        await users.wrote("ready")
        await users.do("play", plan=_plan(owners, "first"))
        await users.do("barrier")
        await users.do("watch", watches=watches)
        await users.do("play", plan=_plan(owners, "before"))
        await users.do("barrier")
        away = draw.choice(brokers)
        begin = time.monotonic()
        others = [owner for owner in owners if places[owner.name] != away]
        await asyncio.gather(
            nodes.away(away, draw.choice((signal.SIGKILL, signal.SIGTERM)), draw.uniform(*AWAY_S)),
            users.do("play", plan=_plan(others, "during")),
        )
        await nodes.ready()
        await users.do("barrier")
        window = Window(begin, time.monotonic())
        await users.do("play", plan=_plan(owners, "after"))
        await users.do("barrier")
        await users.do("views")
        await users.do("end")
        kept.problems += await users.ended()
    finally:
        users.kill()
    judge(kept, users.notes(), places, watches, [window])
    return kept


def _plan(owners: list[Owner], phase: str) -> dict[str, list[Step]]:
    return {owner.name: owner.steps(CALLS[phase], PAUSE_S) for owner in owners}
