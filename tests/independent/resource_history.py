"""Resources as their owners know them: what each was at which moment, and which conditions that meets.

In:    what owners wrote down about their calls: registrations, updates, withdrawals, each with its moments.
Out:   a History of each resource: its states, and which of them it may have had between two moments.
State: none.
Not here: answers (resource_oracle.py), watches (watch_oracle.py), the calls (programs/resource_users.py).

A call takes effect at one moment between its beginning and its end, so a state may have held from the beginning of the
call that made it until the end of the call that replaced it. Other brokers than the owner's hear a little later that a
resource was registered, or that a static one was withdrawn; for them it may have held for so much longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SPREAD_S = 2.0  # a network is settled two seconds after the last fault; without faults it takes some milliseconds
LONG_AGO, NEVER = float("-inf"), float("inf")
OK, OUT_OF_RANGE = "ok", "resource_out_of_range"


@dataclass(frozen=True)
class Condition:
    """A condition as text for the broker, and the same as tests: attribute, operator, value."""

    text: str
    tests: tuple[tuple[str, str, Any], ...] = ()


CONDITIONS = (
    Condition("true"),
    Condition("memory > 4", (("memory", ">", 4),)),
    Condition("memory > 16", (("memory", ">", 16),)),
    Condition("load < 2", (("load", "<", 2),)),
    Condition("memory > 8 and load < 1", (("memory", ">", 8), ("load", "<", 1))),
    Condition("system = 'linux'", (("system", "=", "linux"),)),
    Condition("system = 'linux' and memory > 8", (("system", "=", "linux"), ("memory", ">", 8))),
)
BY_TEXT = {condition.text: condition for condition in CONDITIONS}


@dataclass(frozen=True)
class State:
    """What a resource is from one call on."""

    begin: float  # of the call that made it so
    end: float
    is_there: bool = False
    model: str = ""
    host: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)  # attributes that never change
    memory_max: int = 0  # load and n have no upper bound
    values: Mapping[str, Any] | None = None  # None: none were reported, or it is static

    @property
    def shown(self) -> Mapping[str, Any] | None:
        """Its values as answers and watches show them."""
        has_reported = self.model == "static" or self.values is not None
        return {**self.fixed, **(self.values or {})} if has_reported else None

    def fits(self, condition: Condition, model: str) -> bool:
        """Whether a request of this model with this condition finds it."""
        return self.is_there and self.model == model and all(self._passes(*test) for test in condition.tests)

    def _passes(self, attribute: str, operator: str, wanted: Any) -> bool:
        known = {**self.fixed, **(self.values or {})}
        if attribute in known:
            found = known[attribute]
            return bool(found > wanted if operator == ">" else found < wanted if operator == "<" else found == wanted)
        return operator == "<" or self.memory_max > wanted  # its range meets the condition


@dataclass
class History:
    """All states of one resource, the first of which is that it is not there."""

    key: str
    id: str = ""
    states: list[State] = field(default_factory=lambda: [State(LONG_AGO, LONG_AGO)])

    def spans(self) -> Iterator[tuple[State, float, float]]:
        """Each state, with when it may have begun to hold and may have held at last."""
        ends = [state.end for state in self.states[1:]] + [NEVER]
        for state, until in zip(self.states, ends, strict=True):
            yield state, state.begin, until

    def possible(self, begin: float, end: float, at: str = "") -> list[State]:
        """The states that it may have had at some moment between these, as far as this broker can know."""
        return [
            state
            for (state, since, until), after in zip(self.spans(), [*self.states[1:], State(NEVER, NEVER)], strict=True)
            if since <= end and until + (SPREAD_S if at and _spreads(state, after, at) else 0.0) >= begin
        ]


def _spreads(before: State, after: State, at: str) -> bool:
    """Whether this broker hears of the second state only when it has spread; others it asks about at the host."""
    if before.is_there and after.is_there:
        return False
    there = after if after.is_there else before
    return there.host != at and (after.is_there or there.model == "static")


def histories_of(
    notes: Sequence[Mapping[str, Any]], brokers: Mapping[str, str]
) -> tuple[dict[str, History], list[str]]:
    """Of each resource, by its key; and what went wrong. ``brokers``: where each actor is."""
    found: dict[str, History] = {}
    problems = []
    calls = [note for note in notes if note["kind"] == "call" and "key" in note]
    for note in sorted(calls, key=lambda note: float(note["begin"])):
        history = found.setdefault(note["key"], History(note["key"]))
        history.id = note.get("id", history.id)
        expected = OUT_OF_RANGE if note.get("is_outside") else OK
        if note["outcome"] != expected:
            problems.append(f"{note['do']} of {note['key']} ended with {note['outcome']}, not {expected}")
        if note["outcome"] == OK:
            history.states.append(_state_after(note, history.states[-1], brokers))
    return found, problems


def _state_after(note: Mapping[str, Any], before: State, brokers: Mapping[str, str]) -> State:
    begin, end = note["begin"], note["end"]
    if note["do"] == "withdraw":
        return State(begin, end)
    if note["do"] == "update":
        return State(begin, end, True, before.model, before.host, before.fixed, before.memory_max, note["values"])
    options = note["options"]
    host = brokers[note["actor"]]
    memory_max = int(note.get("memory_max", 0))
    return State(begin, end, True, options["model"], host, options["attributes"], memory_max, options.get("values"))
