"""Tests draw nothing by chance, and secrets of the product come from nothing else.

The same checkout gives the same result: only `make soak` looks for new examples. Whatever a live process seeds, it
seeds from the system's randomness, and machines draw through model/chance.py.
"""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import settings

from tests.architecture.house import ROOT, SOURCE

UNSEEDED = re.compile(r"\bRandom\(\)|\bSystemRandom\b|^\s*(?:import|from) (?:secrets|uuid)\b|seed=time\.", re.MULTILINE)


def test_no_test_draws_what_nobody_seeded() -> None:
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (found := UNSEEDED.findall(path.read_text("utf-8"))) and path.name != "test_chance.py"
    }
    assert wrong == {}


def test_properties_have_the_same_examples_every_time_except_in_make_soak() -> None:
    for name in ("house", "quick", "mutants"):
        profile = settings.get_profile(name)
        assert profile.derandomize, name
        assert profile.database is None, name
    assert not settings.get_profile("thorough").derandomize
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert makefile.count("--hypothesis-profile thorough") == 1


SEEDED = ("build", "build_alone", "BrokerSearch")  # what takes a seed that secrets or nonces come from
MAY_SEED = ("model/chance.py", "client/", "topology/", "sim/", "evaluation/")  # client/: delays only, secrets are given


@pytest.mark.req("O6")
def test_live_nodes_and_searches_get_their_seed_from_the_system() -> None:
    found = {}
    for room in ("live", "cli"):
        for path in sorted((SOURCE / room).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in SEEDED:
                    seeds = [ast.unparse(word.value) for word in call.keywords if word.arg == "seed"]
                    found[f"{path.relative_to(SOURCE)}:{call.lineno}"] = seeds
    assert len(found) >= 5
    assert {where: seeds for where, seeds in found.items() if seeds != ["system_seed()"]} == {}


@pytest.mark.req("O6")
def test_no_machine_seeds_a_generator_itself() -> None:
    wrong = [
        str(path.relative_to(SOURCE))
        for path in sorted(SOURCE.rglob("*.py"))
        if re.search(r"\bRandom\((?!0\))", path.read_text("utf-8"))
        and not str(path.relative_to(SOURCE)).startswith(MAY_SEED)
    ]
    assert wrong == []
