"""What the clients of a live network want and publish, drawn from a seed.

In:    a random source.
Out:   Interest values, each with a text for the broker and a Python function that says the same; Draft values, which
       are publications before they have an id.
State: none.
Not here: who is expected to get what (oracle.py), where the clients are (runs.py).

The function is written beside the text, from docs/reference/subscription-languages.md, and reads no text: a broker
that misreads a condition disagrees with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

COLORS = ("red", "green", "blue", "black")
OWNERS = ("ann", "bob", "joanna", "carl")
CLASSES = ("stock", "bond", "fund")
NAMES = ("AAB", "AXE", "BIT", "CAB")
FLOWS = ("heat", "noise", "flow")


@dataclass(frozen=True)
class Draft:
    """A publication before it has an id."""

    topic: str
    headers: Mapping[str, Any]
    payload: bytes


Test = Callable[[Draft], bool]


def anything(_: Draft) -> bool:
    return True


@dataclass(frozen=True)
class Interest:
    """What one subscription wants; ``fits`` says of a publication on a matching topic what the condition says."""

    filter: str
    language: str = "topic"
    where: str = ""
    fits: Test = anything
    group: str = ""
    echo: bool = True

    @property
    def body(self) -> dict[str, Any]:
        """The fields of SUBSCRIBE, without the number."""
        fields: dict[str, Any] = {"filter": self.filter, "wide": True, "echo": self.echo}
        if self.where:
            fields |= {"language": self.language, "where": self.where}
        if self.group:
            fields["group"] = self.group
        return fields


def random_draft(draw: Random) -> Draft:
    headers: dict[str, Any] = {"size": draw.randrange(100), "color": draw.choice(COLORS)}
    if draw.random() < 0.2:
        del headers[draw.choice(("size", "color"))]
    if draw.random() < 0.5:
        headers |= {"owner": draw.choice(OWNERS), "urgent": draw.random() < 0.5}
    payload = b"x" * draw.choice((3, 30, 300))
    family = draw.randrange(4)
    if family == 0:
        return Draft(f"plant/{draw.randrange(1, 5)}/{draw.choice(FLOWS)}", headers, payload)
    if family == 1:
        return Draft(f"meters/{draw.randrange(40)}", headers, payload)
    if family == 2:
        return Draft(f"market/class={draw.choice(CLASSES)},name={draw.choice(NAMES)}", headers, payload)
    items = "".join(f"<item><price>{draw.randrange(100)}</price></item>" for _ in range(draw.randrange(3)))
    return Draft("orders/new", headers, f"<order>{items}</order>".encode())


def exact(draw: Random) -> Interest:
    return Interest(draw.choice((f"plant/{draw.randrange(1, 5)}/{draw.choice(FLOWS)}", "orders/new")))


def one_level(draw: Random) -> Interest:
    return Interest(draw.choice((f"plant/+/{draw.choice(FLOWS)}", f"plant/{draw.randrange(1, 5)}/+")))


def any_levels(draw: Random) -> Interest:
    return Interest(draw.choice(("meters/#", "orders/#", "plant/2/#")), echo=draw.random() < 0.5)


def predicates(draw: Random) -> Interest:
    low, color = draw.randrange(40, 90), draw.choice(COLORS)

    def fits(draft: Draft) -> bool:
        return draft.headers.get("size", -1) > low and "color" in draft.headers and draft.headers["color"] != color

    return Interest("#", "predicates", f"size > {low} and color != '{color}'", fits)


def sql(draw: Random) -> Interest:
    low, color = draw.randrange(30, 70), draw.choice(COLORS)

    def fits(draft: Draft) -> bool:
        size, urgent = draft.headers.get("size"), draft.headers.get("urgent")
        return (size is not None and 2 * size >= 2 * low and urgent is False) or draft.headers.get("color") == color

    return Interest("plant/#", "sql", f"(size * 2 >= {2 * low} AND NOT urgent) OR color IN ('{color}')", fits)


def regex(draw: Random) -> Interest:
    place, owner = draw.randrange(1, 4), draw.choice(("ann", "bob|carl", "^ann$"))

    def fits(draft: Draft) -> bool:
        return bool(re.search(f"/[{place}4]/", draft.topic) and re.search(owner, draft.headers.get("owner", "\n")))

    return Interest("#", "regex", f"topic ~ '/[{place}4]/' and owner ~ '{owner}'", fits)


def tags(draw: Random) -> Interest:
    kind, begin = draw.choice(CLASSES), draw.choice("AB")

    def fits(draft: Draft) -> bool:
        found = dict(part.split("=") for part in draft.topic.split("/")[1].split(","))
        return found["class"] != kind and found["name"].startswith(begin)

    return Interest("market/+", "tags", f"class!={kind}, name={begin}*", fits)


def integer(draw: Random) -> Interest:
    low = draw.randrange(30)
    return Interest(
        "meters/+", "integer", f"{low}..{low + 9}", lambda draft: low <= int(draft.topic.split("/")[1]) <= low + 9
    )


def xpath(draw: Random) -> Interest:
    low = draw.randrange(30, 95)

    def fits(draft: Draft) -> bool:
        return any(int(price) > low for price in re.findall(rb"<price>(\d+)<", draft.payload))

    return Interest("orders/+", "xpath", f"//item[price > {low}]", fits)


KINDS = (exact, one_level, any_levels, predicates, sql, regex, tags, integer, xpath)


def random_interests(draw: Random) -> list[Interest]:
    return [draw.choice(KINDS)(draw) for _ in range(draw.randint(1, 3))]


def random_group(draw: Random, name: str) -> Interest:
    """An interest that several clients share: with a condition or without one."""
    plain = draw.choice((exact, any_levels, integer, tags))(draw)
    return Interest(plain.filter, plain.language, plain.where, plain.fits, group=name)
