"""topics: creating and finding topics, signed and sealed, and how a directory answers with many topics.

In:    a broker with a topic directory in its process, over TLS, on this machine; a repository of its own.
Out:   ms per creation and per discovery of 1, 10 and 100 topics; ms per query language, beside plain SQLite FTS5; etcd
       over TLS where it is installed; CPU of publications on created topics by that on ruled ones.
State: none.
Not here: the paper's experiment (heliograph evaluate topics).
"""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, time_ns
from typing import Any

import heliograph
from benchmarks import created, machine
from benchmarks.field import say
from benchmarks.figures import budget, budget_lines
from benchmarks.peers import etcd_tls
from heliograph.cli.network_secure import TOPICS, environment, secure_url
from heliograph.discovery.topics.queries import words_of
from heliograph.discovery.topics.topic_searches import SIFTED_AT_FIRST, SIFTED_AT_ONCE
from heliograph.live.vaults.topic_sqlite import SqliteTopics
from heliograph.live.xquery import QueryProcess
from heliograph.repository import AskTopics, KeepTopics, Repository, SiftDocuments, TopicEntry, TopicQuestion

SAYS = "creating and finding topics, signed and sealed; queries over many topics, ms"
LIMITS = {"create": 10.0, "find_1": 3.0, "find_10": 4.0, "find_100": 15.0}
QUERY_LIMITS = {"keywords": 10.0, "sql": 10.0, "regex_all": 300.0, "xpath_first": 200.0, "xpath_all": 5_000.0}
QUERY_LIMITS |= {"xquery_first": 200.0, "xquery_all": 5_000.0}
SEARCHES_PER_S_MIN = 500
AT_ONCE, AMONG = 16, 10_000  # searches at once, topics that the directory has
KINDS = ("temperature", "pressure", "humidity", "vibration", "current", "voltage", "flow", "level")
HOW = [
    "one broker with the topic directory in its process, TLS with certificates; the client in this process",
    "creation: locate a directory, create (sealed both ways), verify, countersign, publish, stored with fsync",
    "discovery: signed request, sealed answer, every directory signature verified (again = remembered); to its end",
    "queries: first 100 of many topics in SQLite, all of them for regex, XPath and XQuery, one topic in ten with XML",
    "fts5 = the same words, plain FTS5; etcd = put and range of 1,200 B values, HTTPS with JSON, fsync, nothing signed",
    "created_by_ruled = CPU of a broker machine per publication, on a created topic by a ruled one",
]


def run(quick: bool) -> dict[str, Any]:
    """Measure."""
    facts, rounds = machine.facts(), 30 if quick else 100
    ours = asyncio.run(_conversations(rounds))
    say("etcd")
    peer = etcd_tls.measure(rounds)
    ours |= _queries(100_000 if quick else 1_000_000)
    say("publications on created topics")
    ours |= created.measure(quick)
    limits = LIMITS | QUERY_LIMITS | created.limits()
    budgets = [budget(name, ours.get(name), limit) for name, limit in limits.items()]
    budgets.append(budget("ms per search, 16 at once", 1_000 / ours["searches_per_s"], 1_000 / SEARCHES_PER_S_MIN))
    return {
        "name": "topics",
        "ours": ours,
        "peers": {"sqlite_fts5": ours.pop("fts5"), "etcd": peer},
        "ratios": _by_etcd(ours, peer),
        "budget": budgets,
        "quick": quick,
        "how": HOW,
        "machine": facts,
    }


def show(result: dict[str, Any]) -> str:
    """One line per figure, with its limit."""
    lines = [f"{name:40}{value:>12}" for name, value in result["ours"].items()]
    lines += [f"plain FTS5, keywords{result['peers']['sqlite_fts5']:>32}", f"etcd over TLS: {result['peers']['etcd']}"]
    lines += [f"ours by etcd: {result['ratios']}", budget_lines(result)]
    return "\n".join(lines)


def _by_etcd(ours: dict[str, Any], peer: dict[str, Any]) -> dict[str, float]:
    """How many times longer we take; etcd neither signs nor seals."""
    pairs = {"create": "put", "find_1": "range_1", "find_10": "range_10", "find_100": "range_100"}
    return {mine: round(ours[mine] / peer[its], 2) for mine, its in pairs.items() if its in peer}


# -- conversations ------------------------------------------------------------------------------------------------


async def _conversations(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text) / "net"
        plain = dict(os.environ) | {"XDG_RUNTIME_DIR": text}
        command = [sys.executable, "-m", "heliograph.cli.main", "network"]
        arguments = [*command, "up", "1", "--secure", "--no-bdn", "--detach", "--dir", str(folder)]
        say(f"starting a broker with a directory of {AMONG:,} topics")
        _fill(folder / TOPICS, AMONG)
        subprocess.run(arguments, check=True, env=plain, capture_output=True)
        try:
            url = secure_url((folder / "a1.log").read_text())
            return await _measure(folder, url, rounds)
        finally:
            subprocess.run([*command, "down", "--dir", str(folder)], check=False, env=plain, capture_output=True)


def _fill(place: Path, count: int) -> None:
    """Topics of others, which no search here finds."""
    place.mkdir(parents=True)
    subject = SqliteTopics(Repository(name="tdn", place=str(place)))
    subject.open()
    subject.keep([KeepTopics(tuple(entries(count)))])
    subject.close()


async def _measure(folder: Path, url: str, rounds: int) -> dict[str, Any]:
    def files(person: str) -> dict[str, Any]:
        chosen = environment(folder, url, person)
        return {
            "authority": chosen["HELIOGRAPH_AUTHORITY"],
            "certificate": chosen["HELIOGRAPH_CERTIFICATE"],
            "key": chosen["HELIOGRAPH_KEY"],
        }

    found: dict[str, Any] = {}
    async with heliograph.connect(url, **files("alice")) as alice, heliograph.connect(url, **files("bob")) as bob:
        for number in range(111):
            space = "one" if number < 1 else "ten" if number < 11 else "hundred"
            await alice.create_topic(f"bench/{number}", space=space, text="a topic of the benchmark")
        say("creating")
        found["create"] = await _times(rounds, lambda: alice.create_topic("bench/x", space="more"))
        for count, space in ((1, "one"), (10, "ten"), (100, "hundred")):
            say(f"finding {count}")

            async def search(space: str = space, count: int = count) -> None:
                topics = [topic async for topic in bob.discover_topics(space=space, count=count)]
                assert len(topics) == count, f"{len(topics)} of {count} were found"

            found[f"find_{count}"] = await _times(rounds, search, lambda: _forget(bob))
            found[f"find_{count}_again"] = await _times(rounds, search)
        say(f"{AT_ONCE} searches at once among {AMONG:,}")
        started, asked = perf_counter(), 0

        async def one_after_another() -> None:
            nonlocal asked
            while perf_counter() - started < 2:
                await _small(bob)()
                asked += 1

        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
        found["searches_per_s"] = round(asked / (perf_counter() - started))
    return found


def _small(client: Any) -> Callable[[], Any]:
    async def search() -> None:
        async for _ in client.discover_topics(space="one", count=1):
            pass

    return search


def _forget(client: Any) -> None:
    """Let a client verify every signature again."""
    keyring = client._desk.statements.keyring
    keyring.renew(keyring)


async def _times(rounds: int, work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    for _ in range(3):
        await work()
    took = []
    for _ in range(rounds):
        before()
        start = perf_counter()
        await work()
        took.append((perf_counter() - start) * 1_000)
    return round(median(took), 2)


# -- queries ------------------------------------------------------------------------------------------------------


def entries(count: int) -> list[TopicEntry]:
    """Topics such as a plant would have; every tenth has an XML document, 100,000 at most."""
    now_ms = time_ns() // 1_000_000
    made = []
    for number in range(count):
        kind, hall = KINDS[number % len(KINDS)], number % 997
        text = f"plant/hall-{hall}/{kind}\n{kind} of hall {hall} sensor {number}\nfloor={number % 40}\nkind={kind}"
        document = f"<s><floor>{number % 40}</floor><n>{number}</n></s>".encode() if number % 10 == 0 else b""
        made.append(
            TopicEntry(
                id=number.to_bytes(16, "big"),
                owner=f"owner-{number % 1_000}",
                created_ms=now_ms,
                issued_ms=now_ms,
                expires_ms=now_ms + 10**9,
                path=f"plant/hall-{hall}/{kind}",
                words=" ".join(words_of(text)),
                joined=text,
                properties={"floor": number % 40, "kind": kind, "serial": number},
                document=document,
                record=b"r" * 600,
            )
        )
    return made


def _queries(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        subject = SqliteTopics(Repository(name="bench", place=folder))
        subject.open()
        say(f"storing {count:,} topics")
        made = entries(count)
        start = perf_counter()
        for first in range(0, count, 10_000):
            subject.keep([KeepTopics(tuple(made[first : first + 10_000]))])
        stored = perf_counter() - start
        plain = _plain_fts5(made)
        del made
        now = time_ns() // 1_000_000
        found = {
            "topics": count,
            "stored_per_s": round(count / stored),
            "keywords": _first(subject, "keywords", "vibration 500", now),
            "sql": _first(subject, "sql", "kind = 'flow' AND floor > 30", now),
            "sql_or": _first(subject, "sql", "serial = 77 OR (kind = 'level' AND floor BETWEEN 3 AND 4)", now),
            "regex_first": _first(subject, "regex", r"hall-9[0-9]\d/pressure", now),
            "regex_all": _all(subject, "regex", r"hall-99[0-9]/pressure", now),
            "xpath_first": _first(subject, "xpath", "floor > 20", now),
            "xpath_all": _all(subject, "xpath", "n > 99990", now),
            "fts5": plain,
            **_xquery(subject, now),
            "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024,
            "file_mib": sum(path.stat().st_size for path in Path(folder).iterdir()) >> 20,
        }
        subject.close()
    return found


def _first(subject: SqliteTopics, language: str, text: str, now: int) -> float:
    """ms until the first 100 are there; the median of five."""
    question = TopicQuestion(language=language, text=text, asker="bob", expires_from_ms=now)
    say(f"{language}: {text}")

    def ask() -> None:
        after: int | None = 0
        got = 0
        while after is not None and got < 100:
            found = subject.ask(AskTopics(question, after, 100 - got))
            got += len(found.entries)
            after = found.next

    return _median(ask, 5)


def _all(subject: SqliteTopics, language: str, text: str, now: int) -> float:
    question = TopicQuestion(language=language, text=text, asker="bob", expires_from_ms=now)
    say(f"{language}, all: {text}")

    def ask() -> None:
        after: int | None = 0
        while after is not None:
            after = subject.ask(AskTopics(question, after, 10_000)).next

    return _median(ask, 3)


def _xquery(subject: SqliteTopics, now: int) -> dict[str, Any]:
    """ms until the first 100 are there, and all; a slice at a time, as a directory asks."""
    if find_spec("saxonche") is None:
        return {}
    process = QueryProcess()

    def ask(text: str, wanted: int, first: int) -> None:
        question = TopicQuestion(language="xquery", text=text, asker="bob", expires_from_ms=now)
        after, got, count = 0, 0, first
        while got < wanted:
            found = subject.ask(AskTopics(question, after, count))
            documents = tuple(entry.document for entry in found.entries)
            got += len(process.sift(SiftDocuments(text, documents, 60_000)).numbers)
            if found.next is None:
                break
            after, count = found.next, SIFTED_AT_ONCE

    say("xquery")
    try:
        process.sift(SiftDocuments("true()", (), 60_000))
        return {
            "xquery_first": _median(lambda: ask("/s/floor > 20", 100, SIFTED_AT_FIRST), 5),
            "xquery_all": _median(
                lambda: ask("for $n in /s/n where $n > 99990 return $n", 1 << 30, SIFTED_AT_FIRST), 3
            ),
        }
    finally:
        process.close()


def _plain_fts5(made: list[TopicEntry]) -> float:
    """The same words in nothing but FTS5."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE f USING fts5(words)")
    database.executemany("INSERT INTO f VALUES (?)", ((entry.words,) for entry in made))
    return _median(
        lambda: database.execute("SELECT rowid FROM f WHERE f MATCH ? LIMIT 100", ('"vibration" "500"',)).fetchall(), 5
    )


def _median(work: Callable[[], Any], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        took.append((perf_counter() - start) * 1_000)
    return round(median(took), 2)
