"""Blocks and similarity of many requests on Spark equal what brute force finds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from heliograph.matching.conditions import covers
from heliograph.matching.languages import compile
from heliograph.matching.similarity import Forest, similarity
from heliograph.model.topics import covers as filter_covers
from heliograph.pipeline import requests as analysis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.req("S5", "R11")]
SCHEMA = "filter string, language string, where string"


def brute_force(rows: list[tuple[str, str, str]]) -> tuple[int, float, int]:
    """Blocks, similarity and maximal wishes, two by two."""
    found = [(pattern.encode(), compile(language, where) if where else None) for pattern, language, where in rows]

    def covering(wide: int, narrow: int) -> bool:
        (one, outer), (other, inner) = found[wide], found[narrow]
        return filter_covers(one, other) and (outer is None or (inner is not None and covers(outer, inner)))

    forest = Forest()
    pairs = [(a, b) for a in range(len(rows)) for b in range(len(rows)) if a != b and covering(a, b)]
    for a, b in pairs:
        forest.join(a, b)
    sizes: dict[int, int] = {}
    for place in range(len(rows)):
        sizes[forest.find(place)] = sizes.get(forest.find(place), 0) + 1
    strictly = {b for a, b in pairs if not covering(b, a)}
    known = set(pairs)
    classes = {min([a, *(b for b in range(len(rows)) if {(a, b), (b, a)} <= known)]) for a in range(len(rows))}
    return (
        sum(1 for size in sizes.values() if size > 1),
        similarity(sizes.values(), len(rows)),
        len(classes - strictly),
    )


def some_requests(seed: int, count: int) -> list[tuple[str, str, str]]:
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        parts = [f"kind = '{chance.choice('abcdef')}'"] if chance.random() < 0.8 else []
        for name in chance.sample("xyz", chance.randint(1, 3)):
            low = chance.randint(0, 30)
            parts.append(f"{name} > {low} and {name} < {low + chance.randint(1, 8)}")
        rows.append((chance.choice(["t/#", "t/1", "u"]), "predicates", " and ".join(parts)))
    return rows


@pytest.mark.parametrize("broadcast_max", [100_000, 0])
def test_blocks_equal_brute_force(spark: SparkSession, broadcast_max: int) -> None:
    rows = (
        some_requests(3, 220)
        + [("t/1", "sql", "x > 3 OR y > 2")] * 2
        + [("t/1", "regex", "name ~ 'a+'"), ("u", "", "")]
    )
    study = analysis.study(spark.createDataFrame(rows, SCHEMA), broadcast_max)
    blocks, alike, maximal = brute_force(rows)
    assert (study.blocks, round(study.similarity, 9), study.maximal_wishes) == (blocks, round(alike, 9), maximal)
    assert blocks > 3, "the check means something"
    assert study.requests == len(rows)
    sizes = [row["requests"] for row in study.block_sizes().collect()]
    assert (len(sizes), round(similarity(sizes, len(rows)), 9)) == (blocks, round(alike, 9))
    wide = study.wide().collect()
    assert len({bytes(row["key"]) for row in wide}) == len(wide) == maximal


@pytest.mark.parametrize("broadcast_max", [100_000, 0])
def test_more_filters_than_signatures_are_compared_in_tasks(
    spark: SparkSession, broadcast_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "SIGNATURES_MAX", 20)  # the driver sees no more than buckets of filters
    chance = random.Random(4)
    rows = [(f"r{chance.randrange(60)}/{chance.randrange(3)}", "predicates", f"a > {n % 9}") for n in range(150)]
    rows += [("r1/#", "predicates", "a > 4"), ("+/2", "predicates", "a > 7"), ("r2/+", "", "")]
    study = analysis.study(spark.createDataFrame(rows, SCHEMA), broadcast_max)
    blocks, alike, maximal = brute_force(rows)
    assert (study.blocks, round(study.similarity, 9), study.maximal_wishes) == (blocks, round(alike, 9), maximal)
    assert blocks > 3


def test_the_papers_example_as_requests(spark: SparkSession) -> None:
    sizes = (4, 5, 4, 3, 4, 7, 1, 1, 1)
    rows = [(f"t/{block}", "predicates", f"a > {n}") for block, size in enumerate(sizes) for n in range(size)]
    assert len(rows) == 30
    figures = analysis.study(spark.createDataFrame(rows, SCHEMA)).figures()
    assert (figures["blocks"], figures["similarity"], figures["maximal"]) == (6, 0.3815, 9)


def test_what_cannot_be_read_or_never_fits_is_counted_apart(spark: SparkSession) -> None:
    rows = [("t", "predicates", "a >"), ("t", "predicates", "a > 1 and a < 0"), ("t", "predicates", "a > 1")]
    figures = analysis.study(spark.createDataFrame(rows, SCHEMA)).figures()
    assert (figures["unreadable"], figures["never"], figures["wishes"], figures["requests"]) == (1, 1, 1, 3)


def test_what_caching_would_have_saved(spark: SparkSession) -> None:
    rows = [("t", "predicates", "a > 1", float(at)) for at in (0, 1, 2, 30, 31)] + [("t", "", "", 5.0)]
    rows += [("t", "sql", "a > 1 AND a > 0", 1000.0), ("t", "predicates", "a >", 7.0)]  # the same wish; none at all
    found = analysis.savings(spark.createDataFrame(rows, SCHEMA + ", time double"), (10, 100)).collect()
    assert [(row["lifetime_s"], row["saved"]) for row in found] == [(10, 3), (100, 4)]


def test_an_answer_as_old_as_its_lifetime_serves_nobody() -> None:
    assert analysis._fetches(np.array([0.0, 10.0, 19.9, 20.0]), 10) == 3
    assert analysis._fetches(np.array([1e18, 1e18 + 128]), 1e-3) == 2, (
        "it ends though such numbers cannot be told apart"
    )
