"""Many topic advertisements at one directory: how long it takes to find some, or all, in every query language.

In:    a repository, how many advertisements; a function that runs XQuery, where it is installed; a clock.
Out:   rows in milliseconds: until the first 100 are there, and until all are.
State: none; the repository is the caller's.
Not here: databases (live/vaults/), creating and discovering over a network (topics.py), budgets (benchmarks/topics.py).
Paper: [topics] §8 stores up to a hundred advertisements and names no figure for more.

The advertisements are such as a plant with a million sensors would have: a path, words, three properties; every tenth
has an XML document. Searching the first 100 is what a program does; searching all is the worst case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Protocol

from heliograph.discovery.topics.queries import XQUERY, words_of
from heliograph.repository import AskTopics, FoundTopics, KeepTopics, SiftDocuments, Sifted, TopicEntry, TopicQuestion

FIRST = 100
AT_ONCE = 10_000  # advertisements that are stored in one transaction
SIFTED_AT_ONCE = 1_000  # documents for one run of a query in XQuery
ROUNDS = 3
KINDS = ("temperature", "pressure", "humidity", "vibration", "current", "voltage", "flow", "level")
RECORD = b"r" * 600  # as long as a signed advertisement
QUERIES = (
    ("string", "vibration of hall 500"),
    ("keywords", "vibration 500"),
    ("regex", r"hall-99[0-9]/pressure"),
    ("sql", "kind = 'flow' AND floor > 30"),
    ("predicates", "kind = 'flow' and floor > 30"),
    ("xpath", "floor > 38"),
    (XQUERY, "/s/floor > 38"),
)

Clock = Callable[[], float]
Sift = Callable[[SiftDocuments], Sifted]


class Topics(Protocol):
    """A repository, as its driver uses it."""

    def keep(self, jobs: list[KeepTopics]) -> object:
        """Store."""
        ...

    def ask(self, job: AskTopics) -> FoundTopics:
        """Search a slice."""
        ...


def entries(first: int, count: int, now_ms: int) -> list[TopicEntry]:
    """Advertisements, numbered from ``first``."""
    return [_entry(number, now_ms) for number in range(first, first + count)]


def _entry(number: int, now_ms: int) -> TopicEntry:
    kind, hall = KINDS[number % len(KINDS)], number % 997
    text = f"plant/hall-{hall}/{kind}\n{kind} of hall {hall} sensor {number}\nfloor={number % 40}\nkind={kind}"
    return TopicEntry(
        id=number.to_bytes(16, "big"),
        owner=f"owner-{number % 1_000}",
        created_ms=now_ms,
        issued_ms=now_ms,
        expires_ms=now_ms + 10**9,
        path=f"plant/hall-{hall}/{kind}",
        words=" ".join(words_of(text)),
        joined=text,
        properties={"floor": number % 40, "kind": kind, "serial": number},
        document=f"<s><floor>{(number // 10) % 40}</floor><n>{number}</n></s>".encode() if number % 10 == 0 else b"",
        record=RECORD,
    )


def fill(subject: Topics, count: int, now_ms: int) -> Iterator[int]:
    """Store this many, a transaction at a time; yields how many there are so far."""
    for first in range(0, count, AT_ONCE):
        many = min(AT_ONCE, count - first)
        subject.keep([KeepTopics(tuple(entries(first, many, now_ms)))])
        yield first + many


def measure(subject: Topics, sift: Sift | None, clock: Clock, now_ms: int) -> Iterator[dict[str, Any]]:
    """A row for each language; without ``sift`` none for XQuery."""
    for language, text in QUERIES:
        if language == XQUERY and sift is None:
            continue
        question = TopicQuestion(language=language, text=text, asker="bob", expires_from_ms=now_ms)
        first, found = [], 0
        for _ in range(ROUNDS):
            began = clock()
            found = _search(subject, sift, question, FIRST)
            first.append((clock() - began) * 1_000)
        began = clock()
        total = _search(subject, sift, question, 1 << 40)
        yield {
            "language": language,
            "query": text,
            "first": found,
            "first_ms": round(median(first), 2),
            "all": total,
            "all_ms": round((clock() - began) * 1_000, 2),
        }


def _search(subject: Topics, sift: Sift | None, question: TopicQuestion, wanted: int) -> int:
    """How many were found: at least ``wanted``, if there are so many."""
    after: int | None = 0
    found = 0
    while after is not None and found < wanted:
        if question.language != XQUERY:
            part = subject.ask(AskTopics(question, after, min(wanted - found, AT_ONCE)))
            found += len(part.entries)
        else:
            assert sift is not None
            part = subject.ask(AskTopics(question, after, SIFTED_AT_ONCE))
            documents = tuple(entry.document for entry in part.entries)
            found += len(sift(SiftDocuments(question.text, documents, 60_000)).numbers) if documents else 0
        after = part.next
    return found
