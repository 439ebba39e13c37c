"""Many advertisements at one directory: every language finds what it should, in the measured form too."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.evaluation.many_topics import FIRST, QUERIES, entries, fill, measure
from heliograph.repository import AskTopics, FoundTopics, KeepTopics, SiftDocuments, Sifted
from heliograph.sim.repositories import MemoryRepository


class Memory:
    """The repository in memory, with the face of a back end."""

    def __init__(self) -> None:
        self.topics = MemoryRepository()

    def keep(self, jobs: list[KeepTopics]) -> object:
        return [self.topics.keep(job) for job in jobs]

    def ask(self, job: AskTopics) -> FoundTopics:
        return self.topics.ask(job)


def sift(job: SiftDocuments) -> Sifted:
    """As the process for XQuery answers the query of QUERIES."""
    return Sifted(tuple(number for number, document in enumerate(job.documents) if b"<floor>39" in document))


@pytest.mark.req("T15")
def test_every_language_finds_advertisements_and_all_are_at_least_the_first() -> None:
    subject, ticks = Memory(), iter(range(10_000))
    assert list(fill(subject, 4_000, 1_000)) == [4_000]
    rows = list(measure(subject, sift, lambda: float(next(ticks)), 1_000))
    assert [(row["language"], row["query"]) for row in rows] == list(QUERIES)
    found: dict[str, Any] = {row["language"]: row for row in rows}
    assert found["sql"]["all"] == found["predicates"]["all"] == 100
    assert found["xpath"]["all"] == found["xquery"]["all"] == 10
    assert all(0 < row["first"] <= max(row["all"], FIRST) for row in rows), rows
    assert [row["language"] for row in measure(subject, None, lambda: 0.0, 1_000)][-1] == "xpath"


def test_one_in_ten_has_a_document() -> None:
    made = entries(0, 100, 1)
    assert sum(bool(entry.document) for entry in made) == 10
    assert len({entry.id for entry in made}) == 100
