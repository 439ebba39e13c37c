"""The content of a report, made up: rows for each of its questions, with names as bad as a network may send them.

In:    nothing, or how many names there are.
Out:   reported(): a ReportContent; BAD, the names.
State: none.
Not here: reports of real archives (test_report.py).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import sin
from typing import Any

from heliograph.pipeline.network import Advice
from heliograph.pipeline.report.content import Answer, ReportContent
from heliograph.pipeline.report.questions import QUESTIONS, TOP, Bars, Columns, OverTime, Period, ReportQuestion

BAD = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "$x^{$",
    "_hidden",
    "&lt;b&gt;&amp;",
    "</style></svg><svg onload=alert(3)>",
    "a\u202eb\x00c\x1b[31m\n",
    "fill: #f0f001",
    "]]><!--",
    "weather/h\u00e4meenlinna/\u65e5\u672c/" + "very-long-" * 30 + "end",
)
FIRST = datetime(2026, 11, 16, 9, tzinfo=UTC).replace(tzinfo=None)
PERIOD = Period(FIRST, FIRST + timedelta(hours=3))


def reported(names: tuple[str, ...] = BAD) -> ReportContent:
    """Every figure with rows, all names and all others."""
    brokers = [
        {
            "broker": name,
            "cluster": f"<i>{number % 2}</i>",
            "connections": number,
            "subscriptions": 1,
            "cpu_permille": 9,
        }
        for number, name in enumerate(names)
    ]
    return ReportContent(
        root="<u>archive</u>",
        period=PERIOD,
        made=FIRST,
        summary={"publications": 12_345, "bytes": 1, "topics": 7, "publishers": 3, "p50": 1.25, "p99": 80.0},
        sections={
            section: [_answer(question, names) for question in questions] for section, questions in QUESTIONS.items()
        }
        | {"Requests": []},
        brokers=brokers,
        links=[{"broker": one, "other": other} for one, other in pairwise(names)],
        advice=[
            Advice("broker", names[0], f"add a broker beside {names[0]}", 0.9),
            Advice("link", f"{names[0]} {names[-1]}", f"link {names[0]} and {names[-1]}", 0.1),
        ],
    )


def nothing() -> ReportContent:
    """The same of an archive that has only publications, and none of these days."""
    sections = {
        section: [Answer(each.name, each.title, each.lead, each.statement(PERIOD), each.chart, None, each.nothing)
                  for each in questions]
        for section, questions in QUESTIONS.items()
    }  # fmt: skip
    return ReportContent(root="archive", period=PERIOD, made=FIRST, sections=sections | {"Requests": []})


def _answer(question: ReportQuestion, names: tuple[str, ...]) -> Answer:
    rows = _rows(question, names)
    statement = question.statement(PERIOD)
    return Answer(question.name, question.title, question.lead, statement, question.chart, rows, question.nothing)


def _rows(question: ReportQuestion, names: tuple[str, ...]) -> list[dict[str, Any]]:
    chart = question.chart
    if isinstance(chart, OverTime):
        series: list[str | None] = [*names[:TOP], None] if chart.series else [""]
        return [
            {"time": str(FIRST + step * timedelta(seconds=PERIOD.step_s)), chart.series or "name": name}
            | {value: (TOP + 1 - number) * (1.1 + sin(step / 9)) for value in chart.values}
            for step in range(90)
            for number, name in enumerate(series)
        ]
    if isinstance(chart, Columns):
        return [{chart.name: number, chart.value: 30.0 / (number + 1)} for number in range(8)]
    if isinstance(chart, Bars):
        return [{chart.name: name, chart.value: 1_000 - number} for number, name in enumerate(names[:TOP])]
    return [{chart.name: name, chart.low: 1.0, chart.high: 20.0 - number} for number, name in enumerate(names[:TOP])]
