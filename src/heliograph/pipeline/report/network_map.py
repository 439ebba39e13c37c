"""The map of a report: brokers in their clusters, the links between them, and advice drawn in.

In:    rows about brokers (PRESENT in questions.py), links, and advice (../network.py).
Out:   Drawing.
State: none.
Not here: where brokers are placed (maps/svg.py), maps of a network that runs (maps/).
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from heliograph.maps.network_view import SeenBroker, SeenLink
from heliograph.maps.svg import arranged
from heliograph.pipeline.network import Advice
from heliograph.pipeline.report.charts import NARROW, WIDE, Drawing, Rows
from heliograph.pipeline.report.themed_svg import (
    ALARM,
    COLOURS,
    FAINT,
    INK,
    PAPER,
    TINT,
    settings,
    short_name,
    size,
    themed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RADIUS, RADIUS_MAX = 11.0, 24.0  # of a broker, in the units of maps/svg.py
NAMED_MAX = 40  # more names would cover each other; the table has them
DRAWN_MAX = 400  # brokers
NAME_MAX = 14
HEIGHT_MAX = 620  # pixels
SCALE_MAX = 1.25
LOWER = 0.6  # of a line, from its upper end: names are below their brokers


def draw_map(brokers: Rows, links: Rows, advice: list[Advice]) -> Drawing:
    """The map of the brokers that are there; at least one."""
    shown = list(brokers)[:DRAWN_MAX]
    names = {row["broker"] for row in shown}
    clusters: dict[str, list[SeenBroker]] = {}
    for row in shown:
        clusters.setdefault(row["cluster"], []).append(SeenBroker(row["broker"], row["cluster"]))
    linked = [SeenLink(row["broker"], row["other"], 0) for row in links if {row["broker"], row["other"]} <= names]
    places = arranged(clusters, linked)
    wide, narrow = (_drawn(width, shown, linked, places, advice) for width in (WIDE, NARROW))
    return Drawing(wide, narrow)


def _drawn(width: int, brokers: Rows, links: list[SeenLink], places: Any, advice: list[Advice]) -> str:
    from matplotlib.figure import Figure

    spots, centres, reach = places
    left = min(x - reach[name] for name, (x, _) in centres.items()) - 20
    right = max(x + reach[name] for name, (x, _) in centres.items()) + 20
    top = min(y - reach[name] for name, (_, y) in centres.items()) - 20
    bottom = max(y + reach[name] for name, (_, y) in centres.items()) + 20
    scale = min(width / (right - left), HEIGHT_MAX / (bottom - top), SCALE_MAX)
    with settings(f"map-{width}"):
        height = max(160, round(scale * (bottom - top)))
        figure: Figure = Figure(figsize=size(width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        margin = (width / scale - (right - left)) / 2
        axes.set_xlim(left - margin, right + margin)
        axes.set_ylim(bottom, top)
        _clusters(axes, centres, reach)
        for link in links:
            _line(axes, spots, link.one, link.other, color=FAINT, linewidth=1.4)
        advised = _advised_links(axes, spots, advice)
        _brokers(axes, brokers, spots, {each.about for each in advice if each.kind == "broker"}, advised)
        return themed(figure, f"Map of {len(brokers)} brokers and {len(links)} links")


def _clusters(axes: Axes, centres: dict[str, tuple[float, float]], reach: dict[str, float]) -> None:
    from matplotlib.patches import Circle

    for name, (x, y) in centres.items():
        axes.add_patch(Circle((x, y), reach[name], facecolor=TINT, edgecolor="none"))
        if name:
            axes.text(x, y - reach[name] + 16, short_name(name, 24), color=FAINT, ha="center", fontweight="bold")


def _line(axes: Axes, spots: dict[str, tuple[float, float]], one: str, other: str, **how: Any) -> None:
    (x1, y1), (x2, y2) = spots[one], spots[other]
    axes.plot([x1, x2], [y1, y2], solid_capstyle="round", **how)


def _advised_links(axes: Axes, spots: dict[str, tuple[float, float]], advice: list[Advice]) -> set[str]:
    """Links that would save delay, dashed, each with how much. The brokers at their ends keep their names."""
    ends: set[str] = set()
    for each in advice:
        one, _, other = each.about.partition(" ")
        if each.kind != "link" or one not in spots or other not in spots:
            continue
        _line(axes, spots, one, other, color=ALARM, linewidth=1.8, linestyle=(0, (4, 3)))
        (x1, y1), (x2, y2) = sorted((spots[one], spots[other]), key=lambda spot: spot[1])
        x, y = x1 + LOWER * (x2 - x1), y1 + LOWER * (y2 - y1)
        told = axes.text(x, y, f"saves {each.value:.0%}", color=ALARM, ha="center", va="center")
        told.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1.5})
        ends |= {one, other}
    return ends


def _brokers(
    axes: Axes, brokers: Rows, spots: dict[str, tuple[float, float]], advised: set[str], ends: set[str]
) -> None:
    from matplotlib.patches import Circle

    most = max((row["connections"] or 0 for row in brokers), default=0)
    for row in brokers:
        x, y = spots[row["broker"]]
        radius = RADIUS + (RADIUS_MAX - RADIUS) * sqrt((row["connections"] or 0) / most) if most else RADIUS
        edge = ALARM if row["broker"] in advised else PAPER
        axes.add_patch(Circle((x, y), radius, facecolor=COLOURS[0], edgecolor=edge, linewidth=2, zorder=3))
        if len(brokers) <= NAMED_MAX or row["broker"] in advised | ends:
            name = short_name(row["broker"], NAME_MAX)
            told = axes.text(x, y + radius + 5, name, color=INK, ha="center", va="top", zorder=4)
            told.set_bbox({"facecolor": TINT, "edgecolor": "none", "pad": 0.5})  # above links
