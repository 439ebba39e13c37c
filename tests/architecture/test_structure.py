"""A reader can follow the source: no import knots, no writes from outside, no class that does everything."""

from __future__ import annotations

import re

from tests.architecture.house import source_files
from tests.architecture.structure import (
    classes_over,
    import_cycles,
    recurring_class_names,
    root_entries,
    writes_from_outside,
)

METHODS_MAX = 30
ROOT_ENTRIES_MAX = 12

# Attributes that another file assigns, each with the reason why a method of the owner does not do it.
HOT = "once per run of publications on its way out; a call for each would slow every publication"
ALLOWED_WRITES = {
    "broker/links.py link.out": HOT,
    "broker/links.py link.sink": HOT,
    "broker/links.py link.mark": HOT,
    "broker/links.py link.deliveries": HOT,
    "broker/arrivals.py link.trace": "once per parcel, on the hot path between brokers",
    "client/reader.py seen.next": "once per publication that a client receives",
    "matching/languages/xpath.py event.document": "parsed once per event, by the first condition that reads it",
    "sim/host.py far.pending": "once per input that carries bytes, which is almost every one: a tenth of a simulation",
    "sim/effects.py effects.stop": "a host settles before the end of its turn, and the take at that end says it again",
}

# Class names that stand in two files, with what each of them is. No new ones.
TWICE = {
    "Drain": "a command to a broker; a command to a client",
    "Subscribe": "a body on the wire; a command to a client",
    "Subscription": "what a client asked for; its face in a program",
    "Unsubscribe": "a body on the wire; a command to a client",
}


def test_no_file_imports_itself_through_others_however_late() -> None:
    assert import_cycles() == [], "type-only imports and imports in functions count too"


def test_nothing_outside_its_file_assigns_a_classs_attributes() -> None:
    found = {re.sub(r":\d+", "", write) for write in writes_from_outside()}
    assert found - set(ALLOWED_WRITES) == set(), "say what happens by a method of the owner"
    assert set(ALLOWED_WRITES) - found == set(), "these exceptions are no longer needed"


def test_a_class_with_many_methods_says_why() -> None:
    docs = {file.name: file.path.read_text("utf-8") for file in source_files()}
    silent = [
        f"{name}: {count} methods"
        for count, name in classes_over(METHODS_MAX)
        if f"{count} methods because" not in docs[name.split()[0]]
    ]
    assert silent == [], "find the second idea, or say in its docstring that it has so many methods because …"


def test_one_name_is_one_thing() -> None:
    assert set(recurring_class_names()) - set(TWICE) == set(), "another class has this name"
    assert set(TWICE) - set(recurring_class_names()) == set(), "these are unique by now"


def test_the_root_is_short() -> None:
    assert len(root_entries()) <= ROOT_ENTRIES_MAX
