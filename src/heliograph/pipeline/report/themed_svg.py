"""Themed SVG: a figure of matplotlib as SVG for a page, whose colours are those of the page.

In:    a figure that is drawn in the colours of PALETTE, and its name.
Out:   the text of an ``<svg>`` element without a size of its own.
State: none.
Not here: what is drawn (charts.py, network_map.py), the colours themselves (page.py).

Matplotlib knows no CSS variables: each colour of the page is drawn as a colour that nothing else has, and replaced here
in style attributes only, so that no text of the network is touched. Text stays text, in the font of the page.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from heliograph.maps.cells import readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = 10  # colours for names; all others together are OTHERS
OTHERS, INK, FAINT, GRID, PAPER, ALARM, TINT = (
    "#f0f020",
    "#f0f021",
    "#f0f022",
    "#f0f023",
    "#f0f024",
    "#f0f025",
    "#f0f026",
)
COLOURS = tuple(f"#f0f0{number:02x}" for number in range(1, SERIES + 1))
PALETTE = {colour: f"var(--c{number})" for number, colour in enumerate(COLOURS, 1)} | {
    OTHERS: "var(--others)",
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    ALARM: "var(--alarm)",
    TINT: "var(--tint)",
}
FONT_PX = 11
NAME_MAX = 44

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_COLOUR = re.compile("|".join(PALETTE))
_FONT = re.compile(r"font: ((?:bold )?)([\d.]+)px [^;]*")
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a topic may be called $x$
    "font.size": FONT_PX,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "date.epoch": "1970-01-01T00:00:00",
}


def settings(name: str) -> Any:
    """A block in which figures are made and written. ``name`` keeps the ids of several figures of a page apart."""
    import matplotlib

    return matplotlib.rc_context(dict(_SETTINGS, **{"svg.hashsalt": name}))


def size(width: int, height: int) -> tuple[float, float]:
    """A size in pixels as matplotlib wants it: SVG has 72 of them in an inch."""
    return width / 72, height / 72


def themed(figure: Figure, title: str) -> str:
    """The figure as SVG, for people who look and, by its title, for those who do not."""
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own font lacks a letter; the browser has another one
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(written.getvalue())  # noqa: S314 what matplotlib has just written
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{_SVG}}}metadata":
                parent.remove(child)
    used = {each.get(_LINK, "").lstrip("#") for each in root.iter()}
    for element in root.iter():
        _theme(element, used)
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    root.set("role", "img")
    root.set("aria-label", readable(title.encode()))
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _theme(element: ElementTree.Element, used: set[str]) -> None:
    """Colours and fonts of the page; no ids that nothing refers to, since they recur in every figure."""
    style = element.get("style")
    if style is not None:
        style = _FONT.sub(r"font: \1\2px var(--font)", style)
        element.set("style", _COLOUR.sub(lambda found: PALETTE[found[0]], style))
    if element.tag == f"{{{_SVG}}}g":
        element.attrib.pop("id", None)
    if (link := element.get(_LINK)) is not None:
        element.attrib.pop(_LINK)
        element.set("href", link)


def short_name(name: str, most: int = NAME_MAX) -> str:
    """A name of the network as printable text, with its middle left out if it is long."""
    text = readable(name.encode(errors="backslashreplace"))
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head + 1 - most :]}"


def short_number(value: float) -> str:
    """A number as axes and legends say it: 1,250, 12.5 k, 3 M."""
    size = abs(value)
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if size >= limit:
            return f"{value / {' G': 1e9, ' M': 1e6, ' k': 1e3}[unit]:.3g}{unit}"
    if size >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
