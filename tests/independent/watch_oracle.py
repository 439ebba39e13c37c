"""Whether watches told every appearance, change and vanishing once, and show the truth when everything has settled.

In:    what owners and watchers wrote down, and when a broker was away.
Out:   a Watched with counts, and the problems in words.
State: none.
Not here: histories and conditions (resource_history.py), the runs (watch_runs.py).

Outside of faults, what a watch tells of a resource follows from its history alone. While a broker is away, and until
all watches have caught up, a watch may miss what was replaced meanwhile, and may say that a resource of that broker
vanished and appeared again; but it never tells what is older than what it told before, nor the same state twice without
an end between them, nor a state that never was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.independent.resource_history import BY_TEXT, Condition, History, State, histories_of

APPEARED, CHANGED, STOPPED, VANISHED = "appeared", "changed", "stopped", "vanished"


class Told(NamedTuple):
    """A change, as a watch told it."""

    what: str
    values: Mapping[str, Any] | None
    at: float


class Window(NamedTuple):
    """From the begin of a fault until every watch has caught up."""

    begin: float
    end: float


@dataclass
class Watched:
    """Counts of one run, and what was wrong."""

    calls: int = 0
    watches: int = 0
    told: int = 0
    during: int = 0  # of them while something was away
    views: int = 0  # resources shown at the end
    wrong_views: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """What is counted has a problem each."""
        return len(self.problems)

    @property
    def figures(self) -> dict[str, int]:
        return {
            "calls of owners": self.calls,
            "watches": self.watches,
            "changes told": self.told,
            "of them in faults": self.during,
            "shown at the end": self.views,
            "wrong views": self.wrong_views,
            "problems": len(self.problems),
        }


def judge(
    kept: Watched,
    notes: Sequence[Mapping[str, Any]],
    brokers: Mapping[str, str],
    watches: Mapping[str, Mapping[str, Any]],
    windows: Sequence[Window],
) -> None:
    """``brokers``: where each actor is; ``watches``: the condition and model of each."""
    histories, problems = histories_of(notes, brokers)
    kept.problems += problems
    kept.calls += sum("key" in note for note in notes)
    kept.problems += [
        f"{note['watch']} did not catch up: {note['problem']}" for note in notes if note["kind"] == "stuck"
    ]
    markers = {note["id"] for note in notes if note.get("do") == "mark" and "id" in note}
    begun = {note["watch"]: (note["begin"], note["end"]) for note in notes if note["kind"] == "watch"}
    views = {note["watch"]: note for note in notes if note["kind"] == "view"}
    for name, wanted in watches.items():
        kept.watches += 1
        told: dict[str, list[Told]] = {}
        for note in notes:
            if note["kind"] == "change" and note["watch"] == name and note["id"] not in markers:
                told.setdefault(note["id"], []).append(Told(note["what"], note["values"], note["at"]))
        condition = BY_TEXT[wanted["where"]]
        known = {history.id for history in histories.values()}
        if unknown := told.keys() - known:
            kept.problems.append(f"{name} told of {unknown}, which nobody registered")
        for history in histories.values():
            what = f"{name} ({wanted['model']} {condition.text}): {history.key}"
            heard = told.get(history.id, [])
            kept.told += len(heard)
            kept.during += sum(_is_within(each.at, windows) for each in heard)
            judge_changes(kept, what, heard, history, condition, wanted["model"], begun[name], windows)
        shown = {id: values for id, values in views[name]["resources"].items() if id not in markers}
        _judge_view(kept, f"{name} ({condition.text})", shown, histories.values(), condition, wanted["model"])
        if views[name]["lost"] or views[name]["unreadable"]:
            kept.problems.append(
                f"{name} lost {views[name]['lost']} changes, {views[name]['unreadable']} were unreadable"
            )


def judge_changes(
    kept: Watched,
    what: str,
    told: Sequence[Told],
    history: History,
    condition: Condition,
    model: str,
    begun: tuple[float, float],
    windows: Sequence[Window],
) -> None:
    """What one watch told of one resource."""
    said = [(each.what, each.values) for each in told]
    starts = [place for place, state in enumerate(history.states) if state in history.possible(*begun)]
    expected = [_expected(history.states[start:], condition, model) for start in starts]
    if said in expected:
        return
    if not windows:
        kept.problems.append(f"{what}: told {_short(said)}, not {_short(expected[-1])}")
        return
    before = [pair for pair, each in zip(said, told, strict=True) if each.at < windows[0].begin]
    after = [pair for pair, each in zip(said, told, strict=True) if each.at > windows[-1].end]
    if not any(due[: len(before)] == before and due[len(due) - len(after) :] == after for due in expected):
        calm = f"{_short(before)} … {_short(after)}"
        kept.problems.append(f"{what}: told {calm} without a fault, of {_short(expected[-1])}")
    kept.problems += [f"{what}: {problem}" for problem in _problems(told, history, condition, model, begun, windows)]


def _expected(states: Sequence[State], condition: Condition, model: str) -> list[tuple[str, Mapping[str, Any] | None]]:
    """What a watch tells of these states, the first of which it finds when it begins."""
    found: list[tuple[str, Mapping[str, Any] | None]] = []
    before = False
    for state in states:
        fits = state.fits(condition, model)
        if fits:
            found.append((CHANGED if before else APPEARED, state.shown))
        elif before:
            found.append((STOPPED if state.is_there else VANISHED, None))
        before = fits
    return found


def _problems(
    told: Sequence[Told],
    history: History,
    condition: Condition,
    model: str,
    begun: tuple[float, float],
    windows: Sequence[Window],
) -> Iterable[str]:
    """What is wrong even though something was away meanwhile."""
    fitting = [state for state in history.states if state.fits(condition, model)]
    order = [state.shown for state in fitting]
    shown, last = False, -1
    seen: dict[int, None] = {}
    for each in told:
        if each.what in (APPEARED, CHANGED):
            if each.values not in order:
                yield f"told {each.values}, which it never was"
                continue
            place = order.index(each.values)
            is_again = place == last and each.what == APPEARED and not shown and _is_within(each.at, windows)
            if place < last or (place == last and not is_again):
                yield f"told {each.values} after {order[last]}, at {each.at:.3f}"
            if shown == (each.what == APPEARED):
                yield f"{each.what} at {each.at:.3f} though it was {'shown' if shown else 'not shown'}"
            if each.at < fitting[place].begin:
                yield f"told {each.values} before it was so"
            shown, last = True, max(last, place)
            seen[place] = None
        else:
            if not shown:
                yield f"{each.what} at {each.at:.3f} though it was not shown"
            shown = False
    spans = [(since, until) for state, since, until in history.spans() if state.fits(condition, model)]
    for place, (since, until) in enumerate(spans):
        if place not in seen and since > begun[1] and not _overlaps(since, until, windows):
            yield f"never told {order[place]}"


def _overlaps(since: float, until: float, windows: Sequence[Window]) -> bool:
    return any(since <= window.end and until >= window.begin for window in windows)


def _is_within(at: float, windows: Sequence[Window]) -> bool:
    return any(window.begin <= at <= window.end for window in windows)


def _judge_view(
    kept: Watched,
    what: str,
    shown: Mapping[str, Any],
    histories: Iterable[History],
    condition: Condition,
    model: str,
) -> None:
    truth = {history.id: history.states[-1].shown for history in histories if history.states[-1].fits(condition, model)}
    kept.views += len(shown)
    if shown != truth:
        kept.wrong_views += 1
        wrong = {id for id in shown.keys() | truth.keys() if shown.get(id, "-") != truth.get(id, "-")}
        some = {id: (shown.get(id, "-"), truth.get(id, "-")) for id in sorted(wrong)[:3]}
        kept.problems.append(f"{what}: shows {len(shown)} instead of {len(truth)}; shown and true: {some}")


def _short(said: Sequence[tuple[str, Mapping[str, Any] | None]]) -> str:
    return (
        " ".join(f"{what}{'' if values is None else ':' + str(values.get('n'))}" for what, values in said) or "nothing"
    )
