"""discover-broker: how soon a client on this host has found one of five brokers, and how often the wrong one.

In:    ours, zenoh and NATS if they are installed.
Out:   ms to the first answer, to the choice and until connected; with one server 50 ms farther away, how often that one
       is chosen.
State: none.
Not here: one search of each system (seeking.py), what makes a server farther (relay.py).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import machine
from benchmarks.field import Field, say
from benchmarks.figures import budget, budget_lines, rounded, spread, table, values
from benchmarks.peers import OURS
from benchmarks.seeking import ABLE, COUNT, DELAY_MS, SEEKERS, Seeker

SAYS = (
    "a client finds one of 5 brokers: first answer, choice, connected, ms; how often a far one; zenoh, NATS beside it"
)
NEAR, FARTHER = "near", "far"
TIMES = ("first_answer_ms", "choice_ms", "connected_ms")
ROUNDS = {True: 40, False: 200}  # the share is a share of so many
FIRST_ANSWER_MS, CHOICE_MS = 5, 20
HOW = [
    f"{COUNT} servers of each system in processes of their own; a round is one search of each",
    "ours and zenoh ask a multicast group on loopback, NATS (nats-py) has the list of its servers",
    "first answer and choice of ours: by the search's own clock, from its first datagram; zenoh's: its scout call",
    f"connected: from the call until the client can be used. Case far: one server is {2 * DELAY_MS} ms farther away by "
    "a relay on loopback; far_share is how often it was chosen",
]


def run(quick: bool, *, systems: Sequence[str] | None = None) -> dict[str, Any]:
    """Both cases, one after the other; in each, all systems in turns."""
    field, facts = Field(systems, ABLE), machine.facts()
    rounds: list[dict[str, Any]] = []
    for case in (NEAR, FARTHER):
        with ExitStack() as stack:
            seekers = {name: _started(stack, name, case) for name in field.present}
            asyncio.run(_case(field, seekers, case, ROUNDS[quick], rounds))
    return _result(field, rounds) | {"quick": quick, "machine": facts}


def _started(stack: ExitStack, name: str, case: str) -> Seeker:
    say(f"{case}: starting {COUNT} servers of {name}")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-discover-")))
    seeker = SEEKERS[name]()
    seeker.start(stack, folder, case == FARTHER)
    return seeker


async def _case(field: Field, seekers: dict[str, Seeker], case: str, count: int, rounds: list[dict[str, Any]]) -> None:
    for seeker in seekers.values():  # modules are loaded and brokers know each other
        for _ in range(3):
            await seeker.search()
            await asyncio.sleep(0.2)
    for number in range(1, count + 1):
        for name in field.turn(field.present, number):
            found = await seekers[name].search()
            rounds.append({"round": number, "case": case, "system": name, **found})
            await asyncio.sleep(0.01)


def _result(field: Field, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: _figures(rounds, name) for name in field.present}
    mine = figures.get(OURS, {})
    ours, peers = field.describe(figures)
    return {
        "name": "discover-broker",
        "unit": "ms, medians of the case near; shares of searches in the case far",
        "how": HOW,
        "ours": ours,
        "peers": peers,
        "rounds": rounds,
        "budget": [
            budget("first answer", mine.get("first_answer_ms"), FIRST_ANSWER_MS, "ms"),
            budget("choice made", mine.get("choice_ms"), CHOICE_MS, "ms"),
            budget("share of searches that chose the far broker", mine.get("far_share"), 0.0),
        ],
    }


def _figures(rounds: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    near = [entry for entry in rounds if (entry["system"], entry["case"]) == (name, NEAR)]
    for figure in TIMES:
        times = [entry[figure] for entry in near if figure in entry]
        if times:
            found |= {figure: rounded(median(times)), f"{figure}_spread": spread(times)}
    far = values(rounds, name, FARTHER, "far")
    if far:
        found["far_share"] = rounded(sum(far.values()) / len(far))
    return found


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows: list[list[object]] = []
    for name, system in {"ours": result["ours"], **result["peers"]}.items():
        if "absent" not in system:
            rows.append([name])
            for figure in TIMES:
                rows[-1] += [system.get(figure), system.get(f"{figure}_spread")]
            rows[-1].append(system.get("far_share"))
    head = ["system"]
    for figure in TIMES:
        head += [figure.replace("_", " "), "[min, max]"]
    missing = [f"{name}: {peer['absent']}" for name, peer in result["peers"].items() if "absent" in peer]
    return "\n".join([table([*head, "far share"], rows), "", budget_lines(result), *missing])
