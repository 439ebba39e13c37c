"""The oracle of boxes: what predicates mean, said predicate by predicate and value by value.

In:    predicates, events.
Out:   holds, fits; strategies for values, conjunctions and events.
State: none.
Not here: anything of matching/boxes/, with which this shares no code.
"""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from heliograph.model.predicates import Conjunction, Op, Predicate

TWO_53 = 1 << 53
NUMBERS = [0, 1, 2, 3, 2.5, -1, -1.5, 0.1, 5e-324, -5e-324, -0.0, 1.7976931348623157e308, -1.7976931348623157e308]
NUMBERS += [TWO_53 - 1, TWO_53, float(TWO_53), TWO_53 + 1, TWO_53 + 2, -TWO_53 - 1, -TWO_53]
NUMBERS += [2**60, 2**60 + 1, 2.0**60 + 256, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 2.0**63, 1e300]
TEXTS = ["", "\0", "a", "a\0", "ab", "abc", "b", "\x7f", "\x80", "é", "\ud7ff", "\ue000", "\U0010ffff", "\U0010ffff\0"]
TEXTS += ["device-0001", "device-0002", "device-"]
ODDITIES = [float("inf"), float("nan"), 2**64, -(2**70), ["list"], {"an": "object"}]

numbers = (
    st.sampled_from(NUMBERS)
    | st.integers(-3, 12)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.sampled_from(TEXTS) | st.text(alphabet="abé\0", max_size=3)
values = numbers | texts | st.booleans()
names = st.sampled_from(["a", "b", "c"])
ORDERED = [Op.EQUAL, Op.UNEQUAL, Op.BELOW, Op.AT_MOST, Op.ABOVE, Op.AT_LEAST]
predicates = st.one_of(
    st.builds(Predicate, names, st.sampled_from(ORDERED), numbers),
    st.builds(Predicate, names, st.sampled_from([*ORDERED, Op.PREFIX]), texts),
    st.builds(Predicate, names, st.sampled_from([Op.EQUAL, Op.UNEQUAL]), st.booleans()),
    st.builds(Predicate, names, st.just(Op.PRESENT), st.just(True)),
)
conjunctions = st.lists(predicates, max_size=5).map(tuple)
# Mostly small integers on few attributes, so that random boxes meet, cover and exclude each other often.
tight_predicates = st.builds(Predicate, names, st.sampled_from(ORDERED), st.integers(0, 5))
tight_conjunctions = st.lists(tight_predicates, max_size=4).map(tuple)
boxes = conjunctions | tight_conjunctions
events = st.dictionaries(names, values | st.sampled_from(ODDITIES) | st.integers(0, 5) | st.none(), max_size=3)


def kind(value: object) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "number" if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return "number" if abs(value) < float("inf") else None
    return "string" if isinstance(value, str) else None


def place(value: object) -> object:
    """Something whose Python order is the order of values."""
    if kind(value) == "number":
        return Fraction(value)  # type: ignore[arg-type]
    return value.encode() if isinstance(value, str) else value


def holds(predicate: Predicate, value: object) -> bool:
    if value is None:
        return False
    if predicate.op is Op.PRESENT:
        return True
    if kind(value) is None or kind(value) != kind(predicate.value):
        return False
    mine, asked = place(value), place(predicate.value)
    return {
        Op.EQUAL: lambda: mine == asked,
        Op.UNEQUAL: lambda: mine != asked,
        Op.BELOW: lambda: mine < asked,
        Op.AT_MOST: lambda: mine <= asked,
        Op.ABOVE: lambda: mine > asked,
        Op.AT_LEAST: lambda: mine >= asked,
        Op.PREFIX: lambda: mine.startswith(asked),
    }[predicate.op]()


def fits(conjunction: Conjunction, event: dict[str, object]) -> bool:
    return all(holds(predicate, event.get(predicate.attribute)) for predicate in conjunction)


def telling_values(*conjunctions_: Conjunction) -> dict[str, list[object]]:
    """Per attribute, values that tell these conjunctions apart if any do: their constants and what is next to them."""
    import math

    found: dict[str, list[object]] = {}
    for conjunction in conjunctions_:
        for predicate in conjunction:
            near = found.setdefault(
                predicate.attribute, [None, 2**64, 0, 1e308, -1e308, "", "\U0010ffff" * 9, True, False]
            )
            value = predicate.value
            if kind(value) == "number":
                around = [value, math.nextafter(float(value), math.inf), math.nextafter(float(value), -math.inf)]
                around += [float(value), int(value) + 1, int(value) - 1, int(value) + 2, int(value) - 2]
                near += [number for number in around if kind(number) == "number"]
            elif isinstance(value, str):
                near += [
                    value,
                    value + "\0",
                    value + "\0\0",
                    value + "\U0010ffff",
                    value[:-1],
                    value[:-1] + "\U0010ffff",
                ]
                if value:
                    point = ord(value[-1])
                    near += [
                        value[:-1] + chr(other) for other in (point - 1, point + 1, 0xE000) if 0 <= other < 0x110000
                    ]
                    near += [value[:-1] + chr(other) + "\U0010ffff" * 3 for other in (point - 1,) if other >= 0]
    return {name: [value for value in near if not _broken(value)] for name, near in found.items()}


def _broken(value: object) -> bool:
    return isinstance(value, str) and any(0xD800 <= ord(one) < 0xE000 for one in value)
