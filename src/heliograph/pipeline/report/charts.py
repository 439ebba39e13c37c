"""Charts: the rows of a question as drawings, one for wide pages and one for telephones, and a legend.

In:    rows as plain values, the chart of their question, the period.
Out:   Drawing: SVG texts and the legend.
State: none.
Not here: the questions (questions.py), how SVG gets the colours of the page (themed_svg.py), the page (page.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import nan
from statistics import median
from typing import TYPE_CHECKING, Any

from heliograph.pipeline.report.questions import Bars, Chart, Columns, OverTime, Period, Spans
from heliograph.pipeline.report.themed_svg import (
    COLOURS,
    FAINT,
    GRID,
    INK,
    OTHERS,
    settings,
    short_name,
    short_number,
    size,
    themed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = 880, 360  # pixels
HALF = 420
HEIGHT, LOW = 250, 210
ROW = 40  # of a name with its bar
LOG_FROM = 200  # times the smallest value: then a linear axis hides the small ones
GAP = 3.0  # usual pauses between two points; a longer one is a gap in the line
TOLD_MAX = 8  # columns with a number above each
DOTS_MAX = 40  # points with a dot each
OTHER_NAMES = "all others"
START = datetime(1970, 1, 1)

Margins = tuple[int, int, int, int]  # left, right, top, bottom, in pixels
MARGINS: Margins = (56, 16, 10, 44)
SLIM: Margins = (8, 10, 4, 44)  # without an axis at the left

Rows = Sequence[dict[str, Any]]
Points = list[tuple[datetime, float]]


@dataclass(frozen=True, slots=True)
class Legend:
    """One name, its colour (a number of the page's, 0 for all others), and a figure that says how much it is."""

    name: str
    colour: int
    told: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure. ``narrow`` is empty if ``wide`` is narrow enough for everything."""

    wide: str
    narrow: str = ""
    legend: tuple[Legend, ...] = ()


def draw(name: str, title: str, chart: Chart, rows: Rows, period: Period) -> Drawing:
    """The drawing of some rows; at least one."""
    if isinstance(chart, OverTime):
        lines = _lines(chart, rows)
        wide, narrow = (
            _drawn(f"{name}-{width}", title, width, HEIGHT, lambda axes: _over_time(axes, chart, lines, period))
            for width in (WIDE, NARROW)
        )
        return Drawing(wide, narrow, _legend(chart, lines, period))
    if isinstance(chart, Columns):
        return Drawing(_drawn(name, title, HALF, HEIGHT, lambda axes: _columns(axes, chart, rows)))
    height = ROW * len(rows) + 46
    if isinstance(chart, Bars):
        return Drawing(_drawn(name, title, HALF, height, lambda axes: _bars(axes, chart, rows), SLIM))
    return Drawing(_drawn(name, title, HALF, height, lambda axes: _spans(axes, chart, rows), SLIM))


def _drawn(
    name: str, title: str, width: int, height: int, paint: Callable[[Axes], None], margins: Margins = MARGINS
) -> str:
    """Margins are the same in every figure, so that times are below each other."""

    from matplotlib.figure import Figure

    with settings(name):
        left, right, top, bottom = margins
        figure: Figure = Figure(figsize=size(width, height))
        axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
        axes.tick_params(length=3, width=0.8)
        axes.tick_params(axis="x", pad=6)
        paint(axes)
        return themed(figure, title)


# -- over time --------------------------------------------------------------------------------------------------------


def _lines(chart: OverTime, rows: Rows) -> dict[str | None, Points]:
    """A line for each name, that with most first; None for all others, which are last."""
    found: dict[str | None, Points] = {}
    for row in rows:
        for value in chart.values:
            if row[value] is not None and row["time"] is not None:
                name = row[chart.series] if chart.series else value
                found.setdefault(name, []).append((datetime.fromisoformat(row["time"]), float(row[value])))
    names = sorted(found, key=lambda name: (name is None, -sum(y for _, y in found[name]), name or ""))
    if not chart.series:
        names = [value for value in chart.values if value in found]
    return {name: sorted(found[name]) for name in names}


def _legend(chart: OverTime, lines: dict[str | None, Points], period: Period) -> tuple[Legend, ...]:
    if len(lines) == 1 and not chart.series:
        return ()
    steps = len(_moments(period)) if chart.form == "area" else 0  # in a step without a row nothing flowed
    return tuple(
        Legend(OTHER_NAMES if name is None else name, 0 if name is None else number, _told(chart, points, steps))
        for number, (name, points) in enumerate(lines.items(), 1)
    )


def _told(chart: OverTime, points: Points, steps: int) -> str:
    total = sum(y for _, y in points)
    return short_number(total) if chart.form == "columns" else f"mean {short_number(total / (steps or len(points)))}"


def _over_time(axes: Any, chart: OverTime, lines: dict[str | None, Points], period: Period) -> None:
    """``axes`` is untyped, since matplotlib's types do not know that it draws times."""
    step = timedelta(seconds=period.step_s)
    colours = [OTHERS if name is None else COLOURS[number] for number, name in enumerate(lines)]
    if chart.form in ("area", "columns"):
        moments = _moments(period)
        heights = [[dict(points).get(moment, 0.0) for moment in moments] for points in lines.values()]
        more: dict[str, Any] = {}
        if chart.form == "columns" or len(moments) == 1:
            moments, more = [*moments, moments[-1] + step], {"step": "post"}
            heights = [[*values, values[-1]] for values in heights]
        axes.stackplot(moments, heights, colors=colours, linewidth=0, **more)
    else:
        for points, colour in zip(lines.values(), colours, strict=True):
            _line(axes, chart, points, colour)
    _value_limits(axes, chart, [y for points in lines.values() for _, y in points])
    axes.set_xlim(period.first - step, period.last + step)  # the same in every figure
    _time_axis(axes)
    _value_axis(axes.yaxis, chart.label)
    _grid(axes)


def _value_limits(axes: Any, chart: OverTime, values: list[float]) -> None:
    if chart.form == "lines" and min(values) > 0 and max(values) > LOG_FROM * min(values):
        axes.set_yscale("log")
        return
    is_stack = chart.form in ("area", "columns")
    if min(values) >= 0:
        axes.set_ylim(0, None if is_stack else max(values) * 1.08 or 1.0)
    if chart.form in ("columns", "steps"):
        axes.yaxis.get_major_locator().set_params(integer=True)


def _grid(axes: Axes) -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def _moments(period: Period) -> list[datetime]:
    """Every step of the period, also those in which nothing happened."""
    step = timedelta(seconds=period.step_s)
    first, last = ((each - START) // step for each in (period.first, period.last))
    return [START + number * step for number in range(first, last + 1)]


def _line(axes: Any, chart: OverTime, points: Points, colour: str) -> None:
    """A line with gaps where nothing was told for long."""
    pauses = [(b[0] - a[0]).total_seconds() for a, b in pairwise(points)]
    usual = median(pauses) if pauses else 0.0
    times, values = [points[0][0]], [points[0][1]]
    for (time, value), pause in zip(points[1:], pauses, strict=True):
        if chart.form == "lines" and pause > GAP * usual:
            times.append(time)
            values.append(nan)
        times.append(time)
        values.append(value)
    more: dict[str, Any] = {"marker": "o", "markersize": 3} if len(points) <= DOTS_MAX else {}
    if chart.form == "steps":
        axes.fill_between(times, values, step="post", color=colour, alpha=0.18, linewidth=0)
        more = {"drawstyle": "steps-post"} if len(points) > 1 else more
    axes.plot(times, values, color=colour, linewidth=1.6, **more)


def _time_axis(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    wide = axes.figure.get_figwidth() > size(HALF, 0)[0]
    locator_of: Any = AutoDateLocator  # without types, as the formatter
    formatter_of: Any = ConciseDateFormatter
    locator = locator_of(minticks=3, maxticks=9 if wide else 5)
    formatter = formatter_of(locator, show_offset=False)
    formatter.zero_formats[3] = "%b %-d"
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlabel("time (UTC)")


def _value_axis(axis: Any, label: str) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axis.set_label_text(label)


# -- names ------------------------------------------------------------------------------------------------------------


def _columns(axes: Axes, chart: Columns, rows: Rows) -> None:
    places = range(len(rows))
    values = [float(row[chart.value] or 0) for row in rows]
    axes.bar(places, values, color=COLOURS[0], width=0.7)
    axes.set_xticks(list(places), [short_name(str(row[chart.name]), 12) for row in rows])
    above: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "color": INK}
    for place, value in zip(places, values, strict=True):
        if len(rows) <= TOLD_MAX:
            axes.annotate(short_number(value), (place, value), **above)
    axes.set_xlim(-0.7, max(len(rows), 4) - 0.3)
    axes.set_ylim(0, (max(values) or 1.0) * 1.15)
    axes.set_xlabel(chart.names)
    _value_axis(axes.yaxis, chart.label)
    _grid(axes)


def _named(axes: Axes, names: list[str], told: list[str], most: float, label: str) -> None:
    """A row for each name, with the name above the place for its bar, and what it amounts to at the right."""
    for place, (name, value) in enumerate(zip(names, told, strict=True)):
        axes.text(0, place - 0.19, short_name(name), color=INK, va="bottom")
        axes.text(1, place - 0.19, value, color=FAINT, va="bottom", ha="right", transform=axes.get_yaxis_transform())
    axes.set_ylim(len(names) - 0.5, -0.75)
    axes.set_xlim(0, most * 1.02 or 1.0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    _value_axis(axes.xaxis, label)


def _bars(axes: Axes, chart: Bars, rows: Rows) -> None:
    values = [float(row[chart.value] or 0) for row in rows]
    axes.barh([place + 0.06 for place in range(len(rows))], values, height=0.34, color=COLOURS[0])
    names = [str(row[chart.name]) for row in rows]
    _named(axes, names, [short_number(value) for value in values], max(values), chart.label)


def _spans(axes: Axes, chart: Spans, rows: Rows) -> None:
    lows, highs = ([float(row[column] or 0) for row in rows] for column in (chart.low, chart.high))
    places = [place + 0.06 for place in range(len(rows))]
    axes.hlines(places, lows, highs, color=COLOURS[0], linewidth=5, alpha=0.45)
    axes.plot(lows, places, "o", color=COLOURS[0], markersize=6)
    names = [str(row[chart.name]) for row in rows]
    told = [f"{short_number(low)} to {short_number(high)}" for low, high in zip(lows, highs, strict=True)]
    _named(axes, names, told, max(highs), chart.label)
