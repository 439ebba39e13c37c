"""Boxes: a conjunction of predicates as one interval per attribute; compares boxes with each other and with events.

In:    conjunctions (model/predicates.py), the attributes of events.
Out:   box(): one interval per attribute; matches, covers, intersects, overlaps on conjunctions, all exact.
State: none.
Not here: the order of values (keys.py), many boxes at once (index.py).
Paper: [resources] §3.2: covering of subscriptions, intersection with resource advertisements.

All answers are exact, "!=" included: a hole is part of its interval.
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.errors import UsageError
from heliograph.matching.boxes.keys import Interval, interval, meet
from heliograph.model.predicates import Conjunction, Predicate

PREDICATES_MAX = 256  # of one conjunction; more are a mistake or an attack
Box = dict[str, Interval]
"""One interval per attribute that is named. An attribute that is not named may be absent or have any value."""


def box(conjunction: Conjunction) -> Box | None:
    """The conjunction as a box; None if no event can match it."""
    if len(conjunction) > PREDICATES_MAX:
        raise UsageError(f"{len(conjunction)} predicates in one conjunction; at most {PREDICATES_MAX} are taken")
    found: Box = {}
    empty = False
    for predicate in conjunction:  # to the end, so that an invalid predicate is reported even after an empty range
        here = interval(predicate)
        attribute = predicate.attribute
        if here is not None and attribute in found:
            here = meet(found[attribute], here)
        if here is None:
            empty = True
        else:
            found[attribute] = here
    return None if empty else found


def matches(conjunction: Conjunction, attributes: Mapping[str, object]) -> bool:
    """True if an event with these attributes matches."""
    found = box(conjunction)
    return found is not None and fits(found, attributes)


def failed(conjunction: Conjunction, attributes: Mapping[str, object]) -> Predicate | None:
    """The first predicate that does not hold, None if all do."""
    for predicate in conjunction:
        if not matches((predicate,), attributes):
            return predicate
    return None


def covers(wide: Conjunction, narrow: Conjunction) -> bool:
    """True if every event that matches ``narrow`` matches ``wide``."""
    inner = box(narrow)
    outer = box(wide)
    return inner is None or (outer is not None and encloses(outer, inner))


def intersects(one: Conjunction, other: Conjunction) -> bool:
    """True if some event matches both."""
    first, second = box(one), box(other)
    return first is not None and second is not None and touches(first, second)


def overlaps(advertisement: Conjunction, subscription: Conjunction) -> bool:
    """True if the advertised resource can match the subscription: it must name every attribute of the subscription."""
    offered, asked = box(advertisement), box(subscription)
    if offered is None or asked is None:
        return False
    return all(attribute in offered for attribute in asked) and touches(offered, asked)


def fits(wanted: Box, attributes: Mapping[str, object]) -> bool:
    """True if an event lies in the box."""
    return all(values.has(attributes.get(attribute)) for attribute, values in wanted.items())


def encloses(outer: Box, inner: Box) -> bool:
    """True if every event in the inner box lies in the outer one."""
    for attribute, values in outer.items():
        narrower = inner.get(attribute)
        if narrower is None or not values.covers(narrower):
            return False
    return True


def touches(one: Box, other: Box) -> bool:
    """True if some event lies in both."""
    return all(attribute not in other or values.meets(other[attribute]) for attribute, values in one.items())
