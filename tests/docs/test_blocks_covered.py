"""Every block of README and docs that a reader would copy is run by a test, or says here why it is not.

A block with a language is one to copy; one without shows output. A page that is walked (test_pages_walked.py) runs all
of its blocks: the walk fails for one that it left out. The other pages are listed with the number of their blocks, so
that a new one is noticed.
"""

from __future__ import annotations

import re

import pytest

from tests.architecture.house import ROOT, documents
from tests.docs.walk import BLOCK

INDENTED = re.compile(r"(?:^    \S.*\n)+", re.MULTILINE)
WALKED = re.compile(r'walk\.page\(f?"(?:\{HOW_TO\}/)?([\w./-]+)"\)')

ELSEWHERE = {  # page: its test, and how many blocks it runs
    "docs/how-to/ask-for-content.md": ("tests/docs/test_ask_for_content.py", 5),
    "docs/how-to/create-and-find-topics.md": ("tests/docs/test_topics.py", 16),
    "docs/how-to/extend.md": ("tests/docs/test_extend.py", 9),
    "docs/how-to/from-broker-to-sql.md": ("tests/pipeline/test_how_to.py", 10),
    "docs/how-to/payloads-as-columns.md": ("tests/pipeline/test_payloads_page.py", 10),
    "docs/reference/configuration.md": ("tests/architecture/test_pages.py", 2),
    "docs/reference/matching.md": ("tests/docs/test_blocks_covered.py", 1),
}
NOT_RUN = {  # page: how many blocks, and why
    "docs/how-to/run-spark-elsewhere.md": (
        8,
        "they need clusters and platforms; tests try what they can here",
    ),
    "ARCHITECTURE.md": (5, "drawings and lists of files, nothing to copy"),
    "docs/reference/pipeline.md": (3, "they need a Spark cluster; tests/pipeline reads with the same options"),
    "docs/reference/protocol.md": (4, "bodies of frames, nothing to copy; tests/wire has their golden bytes"),
}
INDENTED_NOT_RUN = {  # first line of an indented block of the README: why
    "python3 -m venv ~/heliograph && source ~/heliograph/bin/activate": "the environment that these tests run in",
    "make demo    # the same demo, with Spark as its last scene: under 3 minutes once everything is installed": (
        "the targets of the Makefile: `make test` runs this test"
    ),
}


def blocks_by_page() -> dict[str, list[str]]:
    """The blocks to copy of every page that has some."""
    found = {
        document.relative_to(ROOT).as_posix(): [block[2] for block in BLOCK.finditer(document.read_text("utf-8"))]
        for document in documents()
    }
    return {page: blocks for page, blocks in found.items() if blocks}


def walked() -> set[str]:
    text = (ROOT / "tests/docs/test_pages_walked.py").read_text("utf-8")
    return {page if "/" in page or page == "README.md" else f"docs/how-to/{page}" for page in WALKED.findall(text)}


@pytest.mark.req("O2")
def test_every_page_with_blocks_to_copy_is_run_by_a_test_or_says_why_not() -> None:
    pages = blocks_by_page()
    assert set(pages) - walked() - set(ELSEWHERE) - set(NOT_RUN) == set(), "walk these, or say why not"
    assert (walked() | set(ELSEWHERE) | set(NOT_RUN)) - set(pages) == set(), "these have no blocks any more"
    counts = {page: count for page, (_, count) in ELSEWHERE.items()} | {page: NOT_RUN[page][0] for page in NOT_RUN}
    assert {page: len(pages[page]) for page in counts} == counts, "run the new blocks too, then count them here"


@pytest.mark.req("O2")
def test_the_tests_of_other_pages_name_them() -> None:
    silent = [
        page for page, (test, _) in ELSEWHERE.items() if page.rpartition("/")[2] not in (ROOT / test).read_text("utf-8")
    ]
    assert silent == []


@pytest.mark.req("O2")
def test_every_indented_block_of_the_readme_says_why_it_is_not_run() -> None:
    text = BLOCK.sub("", (ROOT / "README.md").read_text("utf-8"))
    assert {block.splitlines()[0].strip() for block in INDENTED.findall(text)} == set(INDENTED_NOT_RUN)


def test_the_index_of_conditions_answers_as_its_page_shows() -> None:
    (block,) = blocks_by_page()["docs/reference/matching.md"]
    names: dict[str, object] = {}
    shown = re.findall(r"^(index\.match.*?)  # (.*)$", block, re.MULTILINE)
    setup, _, _ = block.partition(shown[0][0])
    exec(setup, names)
    assert [repr(eval(question, names)) for question, _ in shown] == [answer for _, answer in shown]
