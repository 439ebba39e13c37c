"""A drawing of the map: clusters on a circle, the brokers of each on a smaller circle, links as lines with their costs.

In:    a NetworkView.
Out:   the text of a self-contained SVG file.
State: none.
Not here: merging reports into the view (network_view.py).

Brokers of a cluster keep their order, so that a ring looks like one; each cluster is turned, or mirrored, so that its
links to other clusters are short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import cos, hypot, pi, sin

from heliograph.maps.cells import cell
from heliograph.maps.network_view import LOST, SILENT, NetworkView, SeenBroker, SeenLink

BROKER_R = 17.0
SPACING = 84.0  # between neighbours on a cluster's circle: space for a cost
RIM = 40.0  # between a cluster's brokers and its edge
GAP = 90.0  # between clusters
MARGIN = 30.0
LEGEND_HEIGHT = 34.0
WIDTH_MIN = 620.0  # of the legend
NAME_INSIDE_MAX = 4  # characters that fit into a broker's circle

ROUNDS = 3
CLEAR = BROKER_R + 9.0  # a line that comes closer to a broker would seem to end there
COLLISION = 10_000.0
FINE_STEPS, FINE_MAX = 4, 16  # a cluster that is not too large is also turned by fractions of a place

COLOURS = ("#3367a8", "#b3541e", "#3a7d44", "#7a4a9e", "#8a6d1d", "#a83257", "#2a7f86", "#5f5f5f")
INK, GREY, ALARM = "#222222", "#9a9a9a", "#c22f2f"

STYLE = f"""\
text {{ font: 12px sans-serif; fill: {INK}; text-anchor: middle; }}
.cost {{ font-size: 10px; fill: #555555; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }}
.inside {{ fill: #ffffff; font-weight: bold; }}
.cluster {{ font-size: 14px; font-weight: bold; }}
.legend {{ font-size: 11px; text-anchor: start; }}
line {{ stroke: #777777; stroke-width: 1.5; }}
line.between {{ stroke: {INK}; stroke-width: 2.2; }}
line.way {{ stroke: {GREY}; stroke-width: 1.2; stroke-dasharray: 1 5; }}
line.suspected {{ stroke: {ALARM}; stroke-dasharray: 7 5; }}"""

Point = tuple[float, float]


def draw(view: NetworkView) -> str:
    """The drawing."""
    clusters = view.clusters
    places, centres, reach = arranged(clusters, view.links)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(clusters)}
    left, top, width, height = _frame(centres, reach)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{len(view.brokers)} brokers in {len(clusters)} clusters</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for name, (x, y) in centres.items():
        lines.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{reach[name]:.1f}" fill="{colours[name]}" fill-opacity="0.08" '
            f'stroke="{colours[name]}" stroke-opacity="0.5"/>'
        )
        lines.append(f'<text class="cluster" x="{x:.1f}" y="{y - reach[name] + 18:.1f}">{_text(name)}</text>')
    drawn = [link for link in view.links if link.one in places and link.other in places]
    lines += [_line(view, link, places) for link in drawn]
    lines += [_cost(view, link, places, number) for number, link in enumerate(drawn)]
    for name, members in clusters.items():
        for broker in members:
            lines += _broker(broker, places[broker.name], colours[name])
    lines += _legend(left + 14, top + height - LEGEND_HEIGHT / 2)
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _frame(centres: dict[str, Point], reach: dict[str, float]) -> tuple[float, float, float, float]:
    """Left, top, width and height of everything, including the legend."""
    left = min((x - reach[name] for name, (x, _) in centres.items()), default=0.0) - MARGIN
    right = max((x + reach[name] for name, (x, _) in centres.items()), default=0.0) + MARGIN
    top = min((y - reach[name] for name, (_, y) in centres.items()), default=0.0) - MARGIN
    bottom = max((y + reach[name] for name, (_, y) in centres.items()), default=0.0) + MARGIN
    width = max(right - left, WIDTH_MIN)
    return (left + right - width) / 2, top, width, bottom - top + LEGEND_HEIGHT


def arranged(
    clusters: dict[str, list[SeenBroker]], links: Sequence[SeenLink]
) -> tuple[dict[str, Point], dict[str, Point], dict[str, float]]:
    """The position of each broker, the centre of each cluster, and the radius of each cluster."""
    rings = {name: _radius(len(members), SPACING) for name, members in clusters.items()}
    reach = {name: radius + RIM for name, radius in rings.items()}
    wide = _radius(len(clusters), 2 * max(reach.values(), default=0.0) + GAP)
    centres = {name: _on_circle((0.0, 0.0), wide, number, len(clusters)) for number, name in enumerate(clusters)}
    cluster_of = {broker.name: name for name, members in clusters.items() for broker in members}
    members_of = {name: [broker.name for broker in members] for name, members in clusters.items()}
    outside: dict[str, list[tuple[str, str]]] = {name: [] for name in clusters}
    for link in links:
        here, there = cluster_of.get(link.one), cluster_of.get(link.other)
        if here is not None and there is not None and here != there:
            outside[here].append((link.one, link.other))
            outside[there].append((link.other, link.one))
    places = {broker: centres[name] for broker, name in cluster_of.items()}
    for _ in range(ROUNDS):  # the first round uses the centres of the other clusters, later ones their brokers
        for name, names in members_of.items():
            near = names + [each for _, far in outside[name] for each in members_of[cluster_of[far]]]
            candidates = _turned(names, centres[name], rings[name])
            places |= min(
                candidates, key=lambda turned: _badness({**places, **turned}, outside[name], list(dict.fromkeys(near)))
            )
    return places, centres, reach


def _badness(places: dict[str, Point], links: Sequence[tuple[str, str]], near: Sequence[str]) -> float:
    """A penalty for long links, and for links that cross brokers which are not their ends."""
    total = 0.0
    for one, other in links:
        (x1, y1), (x2, y2) = places[one], places[other]
        length = hypot(x2 - x1, y2 - y1) or 1.0
        total += length
        for name in near:
            if name not in (one, other):
                x, y = places[name]
                along = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length
                across = abs((x - x1) * (y2 - y1) - (y - y1) * (x2 - x1)) / length
                if 0 < along < length and across < CLEAR:
                    total += COLLISION
    return total


def _turned(names: list[str], centre: Point, radius: float) -> Iterator[dict[str, Point]]:
    """The ways to arrange brokers on a circle in their order."""
    count = len(names)
    steps = FINE_STEPS if count <= FINE_MAX else 1
    for order in (names, names[::-1]):
        for turn in range(count * steps):
            yield {name: _on_circle(centre, radius, place + turn / steps, count) for place, name in enumerate(order)}


def _radius(count: int, spacing: float) -> float:
    """The radius of a circle on which this many points have this spacing."""
    return 0.0 if count < 2 else spacing / (2 * sin(pi / count))


def _on_circle(centre: Point, radius: float, place: float, count: int) -> Point:
    """A place on a circle. Places begin at the top and go clockwise; two are side by side."""
    angle = 2 * pi * place / max(1, count) - (pi if count == 2 else pi / 2)
    return centre[0] + radius * cos(angle), centre[1] + radius * sin(angle)


def _line(view: NetworkView, link: SeenLink, places: dict[str, Point]) -> str:
    (x1, y1), (x2, y2) = places[link.one], places[link.other]
    between = view.brokers[link.one].cluster != view.brokers[link.other].cluster
    kinds = [
        kind for kind, applies in (("between", between), ("way", link.way), ("suspected", link.suspected)) if applies
    ]
    return f'<line class="{" ".join(kinds)}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _cost(view: NetworkView, link: SeenLink, places: dict[str, Point], number: int) -> str:
    """A link's cost, at the middle of a short line, or beside the middle of a long one, which others may cross."""
    (x1, y1), (x2, y2) = places[link.one], places[link.other]
    part = 0.5
    if hypot(x2 - x1, y2 - y1) > 1.2 * SPACING:
        inside = view.brokers[link.one].cluster == view.brokers[link.other].cluster
        part = (0.27, 0.73)[number % 2] if inside else (0.36, 0.64)[number % 2]
    x, y = x1 + part * (x2 - x1), y1 + part * (y2 - y1)
    return f'<text class="cost" x="{x:.1f}" y="{y + 3.5:.1f}">{link.cost}</text>'


def _broker(broker: SeenBroker, place: Point, colour: str) -> Iterator[str]:
    x, y = place
    away = broker.state in (SILENT, LOST)
    fill = "#ffffff" if away else colour
    edge = f'stroke="{ALARM}" stroke-width="2" stroke-dasharray="4 3"' if away else f'stroke="{INK}" stroke-width="1"'
    told = f"{broker.name}, slot {broker.slot}, {broker.state}{f', {broker.address}' if broker.address else ''}"
    yield f"<g><title>{_text(told)}</title>"
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{BROKER_R}" fill="{fill}" {edge}/>'
    if broker.leader:
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{BROKER_R + 4}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
    if len(broker.name) <= NAME_INSIDE_MAX:
        yield f'<text class="{"" if away else "inside"}" x="{x:.1f}" y="{y + 4:.1f}">{_text(broker.name)}</text>'
    else:
        yield f'<text x="{x:.1f}" y="{y + BROKER_R + 17:.1f}">{_text(broker.name)}</text>'
    yield "</g>"


def _text(text: str) -> str:
    """Text for XML. Names come from peers, and may contain characters that XML does not allow."""
    return escape(cell(text))


def _legend(x: float, y: float) -> Iterator[str]:
    for kind, text, width in (
        ("", "link, with its cost", 150),
        ("suspected", "suspected or lost", 150),
        ("way", "way through a cluster", 175),
    ):
        yield f'<line class="{kind}" x1="{x:.0f}" y1="{y - 4:.0f}" x2="{x + 26:.0f}" y2="{y - 4:.0f}"/>'
        yield f'<text class="legend" x="{x + 32:.0f}" y="{y:.0f}">{text}</text>'
        x += width
    yield f'<text class="legend" x="{x:.0f}" y="{y:.0f}">double edge: leader</text>'
