"""Whether answers about resources were true, each resource judged by itself between request and answer.

In:    what owners and requesters wrote down.
Out:   an Answers with counts, and the problems in words.
State: none.
Not here: histories and conditions (resource_history.py), the runs (resource_runs.py).

The promise is that of docs/how-to/discover-resources.md: what an answer says of a resource was true at some moment
between the request and its answer. So a value that was replaced before the request, a resource that is missing though
its registration was acknowledged before, and one that is shown though its withdrawal was, are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.independent.resource_history import BY_TEXT, Condition, History, State, histories_of


@dataclass
class Answers:
    """Counts of one run, and what was wrong."""

    calls: int = 0
    answers: int = 0
    resources: int = 0  # in answers
    old: int = 0
    missed: int = 0
    withdrawn: int = 0
    unfit: int = 0
    misnamed: int = 0
    incomplete: int = 0
    spreading: int = 0  # not wrong: a registration or withdrawal that this broker had not heard of yet
    problems: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """What is counted has a problem each."""
        return len(self.problems)

    @property
    def figures(self) -> dict[str, int]:
        return {
            "calls of owners": self.calls,
            "answers": self.answers,
            "resources in them": self.resources,
            "old values": self.old,
            "missed": self.missed,
            "withdrawn": self.withdrawn,
            "unfit": self.unfit,
            "misnamed": self.misnamed,
            "incomplete": self.incomplete,
            "not spread yet": self.spreading,
            "problems": len(self.problems),
        }


def judge(kept: Answers, notes: Sequence[Mapping[str, Any]], brokers: Mapping[str, str]) -> None:
    """``brokers``: where each actor is."""
    histories, problems = histories_of(notes, brokers)
    kept.problems += problems
    by_id = {history.id: history for history in histories.values()}
    for note in notes:
        if note.get("do") == "discover":
            _judge_answer(kept, note, by_id, brokers[note["actor"]])
        elif note["kind"] == "call":
            kept.calls += 1


def _judge_answer(kept: Answers, note: Mapping[str, Any], histories: Mapping[str, History], at: str) -> None:
    options = note["options"]
    asked = f"{note['actor']} asked {options} at {note['begin']:.3f}..{note['end']:.3f}"
    if note["outcome"] != "ok":
        kept.problems.append(f"{asked}: {note['outcome']}")
        return
    kept.answers += 1
    kept.resources += len(note["rows"])
    if not note["complete"]:
        kept.incomplete += 1
        kept.problems.append(f"{asked}: incomplete, without {note['missing']}")
    rows = {row[0]: row for row in note["rows"]}
    if len(rows) < len(note["rows"]) or len(rows) > (options.get("best") or len(rows)):
        kept.problems.append(f"{asked}: {len(note['rows'])} rows of {len(rows)} resources")
    if unknown := rows.keys() - histories.keys():
        kept.problems.append(f"{asked}: got {unknown}, which nobody registered")
    for id, history in histories.items():
        verdicts = []
        for broker in (at, ""):  # with what has not spread yet, and without
            possible = {each: histories[each].possible(note["begin"], note["end"], broker) for each in histories}
            verdicts.append(_verdict(id, history, rows.get(id), possible, note))
        if verdicts[0]:
            kind, text = verdicts[0]
            setattr(kept, kind, getattr(kept, kind) + 1)
            kept.problems.append(f"{asked}: {history.key} {text}")
        elif verdicts[1]:
            kept.spreading += 1


def _verdict(
    id: str,
    history: History,
    row: Sequence[Any] | None,
    possible: Mapping[str, Sequence[State]],
    note: Mapping[str, Any],
) -> tuple[str, str] | None:
    """What is wrong with what an answer says of one resource: what is counted, and in words."""
    options = note["options"]
    condition, model = BY_TEXT[options["where"]], options.get("model", "dynamic")
    states = possible[id]
    if row is None:
        hosts = {state.host for state in states}
        if not all(state.fits(condition, model) for state in states) or hosts & set(note["missing"]):
            return None
        return None if _is_beaten(id, possible, condition, options) else ("missed", f"is missing: {states}")
    _, name, host, values = row
    there = [state for state in states if state.is_there]
    shown = [state for state in there if state.shown == values]
    if not there:
        return "withdrawn", "is shown though it was withdrawn"
    if not shown:
        return "old", f"has {values}, not {[state.shown for state in there]}"
    if not any(state.fits(condition, model) for state in shown):
        return "unfit", f"does not match: {values}, {shown}"
    if name != history.key or host not in [state.host for state in shown]:
        return "misnamed", f"is called {name!r} at {host!r}"
    return None


def _is_beaten(
    id: str, possible: Mapping[str, Sequence[State]], condition: Condition, options: Mapping[str, Any]
) -> bool:
    """Whether enough others may have been as good or better in the order that was asked for."""
    best = int(options.get("best", 0))
    if not best:
        return False
    attribute, _, direction = options["order"].partition(" ")
    sign = -1 if direction == "desc" else 1
    ranks = {
        other: [
            sign * state.values[attribute] if state.values is not None else None
            for state in states
            if state.fits(condition, "dynamic")
        ]
        for other, states in possible.items()
    }
    if any(rank is None for rank in ranks[id]):
        return True  # nothing is said about the rank of a resource without values
    worst = max(rank for rank in ranks[id] if rank is not None)
    rivals = [other for other, found in ranks.items() if other != id and any(r is None or r <= worst for r in found)]
    return len(rivals) >= best
