"""xpath: a thousand XPath interests on one document of 4 KiB, against libxml2 evaluating each of them.

In:    nothing; the document and the expressions are made here.
Out:   ms of CPU for all interests on one event, parsing included, for each kind of expression; libxml2's beside it.
State: none.
Not here: the box index (matching/boxes/), brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from benchmarks import machine
from benchmarks.figures import budget, budget_lines, rounded, table
from heliograph.matching.condition import Event
from heliograph.matching.languages import compile

SAYS = "1,000 XPath interests on one document of 4 KiB, and what libxml2 takes for each by itself"
INTERESTS = 1_000
BUDGET_MS = 10.0
KINDS: dict[str, Callable[[int], str]] = {
    "attribute": lambda number: f"//item[@sku = 's{number}']",
    "range": lambda number: f"//item[price > {number}]",
    "path": lambda number: f"/order/item[@sku = 's{number}']/price > 50",
    "two tests": lambda number: f"//item[@n >= {number % 50} and price < {3 * number % 170}]",
    "count": lambda number: f"count(//item[price > {number}]) > 3",
    "function": lambda number: f"contains(/order/customer, 'a{number}')",
}


def run(quick: bool) -> dict[str, Any]:
    """Every kind by itself, then all of them in one mix."""
    payload, repeats = document(), 5 if quick else 25
    kinds = {name: [kind(number) for number in range(INTERESTS)] for name, kind in KINDS.items()}
    kinds["mix"] = [
        texts[number] for number in range(INTERESTS) for texts in [list(kinds.values())[number % len(KINDS)]]
    ]
    rounds = [{"kind": name, **_measure(texts, payload, repeats)} for name, texts in kinds.items()]
    mix = rounds[-1]["ms"]
    return {
        "name": "xpath",
        "quick": quick,
        "machine": machine.facts(),
        "document_bytes": len(payload),
        "rounds": rounds,
        "budget": [budget("1,000 XPath interests of all kinds on 4 KiB", mix, BUDGET_MS, "ms")],
    }


def document() -> bytes:
    """An order of 4 KiB."""
    items = "".join(
        f'<item sku="s{number}" n="{number}"><name>widget {number}</name><price>{number * 3}</price></item>'
        for number in range(58)
    )
    return f'<order id="7"><customer>ann</customer>{items}</order>'.encode()


def show(result: dict[str, Any]) -> str:
    """The rounds as a table, then the budget."""
    rows = [(one["kind"], one["matches"], one["ms"], one["libxml2_ms"]) for one in result["rounds"]]
    return table(("kind", "matches", "ms", "libxml2 ms"), rows) + "\n\n" + budget_lines(result)


def _measure(texts: Sequence[str], payload: bytes, repeats: int) -> dict[str, Any]:
    residues = [compile("xpath", text).residue for text in texts]
    evaluators = [etree.XPath(f"boolean({text})", regexp=False, smart_strings=False) for text in texts]

    def ours() -> int:
        event = Event(b"orders", b"", payload)
        return sum(residue.matches(event) for residue in residues if residue is not None)

    def theirs() -> int:
        root = etree.fromstring(payload)
        return sum(evaluate(root) for evaluate in evaluators)

    found = ours()
    assert found == theirs(), "both say the same"
    return {"matches": found, "ms": _best(ours, repeats), "libxml2_ms": _best(theirs, repeats)}


def _best(work: Callable[[], int], repeats: int) -> float:
    """The least CPU that it took."""
    took = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return rounded(min(took) * 1e3)
