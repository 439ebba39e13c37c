"""The page of a report: HTML that needs nothing else, no script, no server, no font.

In:    ReportContent.
Out:   page(): the text of the file.
State: none.
Not here: what is asked (questions.py, content.py), drawings (charts.py, network_map.py).

Every text that comes from the network passes ``_text``, which escapes it and makes it printable; drawings escape theirs
themselves. The page also forbids itself to load or run anything, so a mistake here would show, and not act.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from shlex import quote
from typing import Any

from heliograph.maps.cells import readable
from heliograph.pipeline.report.charts import Drawing, draw
from heliograph.pipeline.report.content import Answer, ReportContent
from heliograph.pipeline.report.network_map import draw_map
from heliograph.pipeline.report.questions import ASK_FOR_SYSTEM, OverTime
from heliograph.pipeline.report.style import STYLE
from heliograph.pipeline.report.themed_svg import short_number

ROWS_SHOWN_MAX = 60
CELL_MAX = 200  # characters
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
NAMES = {
    "publications": "publications",
    "topics": "topics",
    "publishers": "publishers",
}
WORTH = {
    "requests": "requests",
    "unreadable": "unreadable",
    "never": "that nothing can match",
    "maximal": "that no other covers",
    "blocks": "blocks",
}


def page(content: ReportContent) -> str:
    """The whole file."""
    title = f"Network report: {content.root.rstrip('/').rpartition('/')[2] or content.root}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_text(title)}</title><style>{STYLE}</style></head><body>",
        *_head(content, title),
        "<main>",
        *_map(content),
    ]
    for name, answers in content.sections.items():
        parts += _section(name, answers, content)
    parts += ["</main>", *_foot(content), "</body></html>"]
    return "\n".join(parts) + "\n"


def _text(value: object, most: int = CELL_MAX) -> str:
    """A text of the network, harmless."""
    text = readable(str(value).encode(errors="backslashreplace"))
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")


# -- the top and the end ----------------------------------------------------------------------------------------------


def _head(content: ReportContent, title: str) -> Iterator[str]:
    yield "<header>"
    yield (
        '<form class="themes" aria-label="Theme">'
        '<label><input type="radio" name="theme" id="auto" checked>auto</label>'
        '<label><input type="radio" name="theme" id="light">light</label>'
        '<label><input type="radio" name="theme" id="dark">dark</label></form>'
    )
    yield f"<h1>{_text(title)}</h1>"
    first, last = content.period.first, content.period.last
    same = first.date() == last.date()
    until = f"{last:%H:%M:%S}" if same else f"{last:%Y-%m-%d %H:%M}"
    since = f"{first:%Y-%m-%d %H:%M:%S}" if same else f"{first:%Y-%m-%d %H:%M}"
    yield f'<p class="lead">{since} to {until} UTC, in steps of {_span(content.period.step_s)}</p>'
    yield f'<ul class="tiles">{"".join(_tiles(content))}</ul>'
    names = ["Map and advice", *content.sections]
    links = "".join(f'<a href="#{_anchor(name)}">{name}</a>' for name in names)
    yield f"<nav>{links}</nav></header>"


def _tiles(content: ReportContent) -> Iterator[str]:
    found = content.summary
    for name, told in NAMES.items():
        if found.get(name) is not None:
            yield _tile(short_number(found[name]), told)
    if found.get("bytes") is not None:
        yield _tile(f"{short_number(found['bytes'])}B", "of payload")
    if content.brokers:
        yield _tile(short_number(len(content.brokers)), "brokers at the end")
        yield _tile(short_number(sum(row["connections"] or 0 for row in content.brokers)), "connections at the end")
    if found.get("p50") is not None:
        yield _tile(f"{short_number(found['p50'])} ms", "median delay")
        yield _tile(f"{short_number(found['p99'])} ms", "99th percentile")


def _tile(number: str, told: str) -> str:
    return f"<li><b>{_text(number)}</b><span>{_text(told)}</span></li>"


def _foot(content: ReportContent) -> Iterator[str]:
    yield (
        f"<footer>Made {content.made:%Y-%m-%d %H:%M} UTC by <code>heliograph pipeline report</code>. Every figure has "
        "its question below it. To ask it again: <code>heliograph pipeline sql --tables "
        f"{_text(quote(content.root))}{''.join(_day_options(content))} 'SQL'</code></footer>"
    )


def _day_options(content: ReportContent) -> Iterator[str]:
    for name, day in zip(("since", "until"), content.days, strict=True):
        if day:
            yield f" --{name} {_text(quote(day))}"


def _span(seconds: int) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


# -- sections ---------------------------------------------------------------------------------------------------------


def _map(content: ReportContent) -> Iterator[str]:
    yield '<section id="map-and-advice"><h2>Map and advice</h2>'
    yield '<figure class="wide" id="map">'
    if content.brokers:
        yield (
            '<p class="lead">Brokers that were there at the end, larger with more connections. What is advised is red: '
            "a ring around a broker, a dashed line for a new link.</p>"
        )
        yield from _drawing(draw_map(content.brokers, content.links, list(content.advice)))
        yield f'<div class="more">{_numbers(content.brokers)}</div>'
    else:
        yield f'<p class="nothing">No broker has reported. {ASK_FOR_SYSTEM}</p>'
    yield "</figure>"
    if content.advice:
        rows = "".join(f"<li>{_text(each.text, 400)}</li>" for each in content.advice)
        yield f'<ol class="advice">{rows}</ol>'
    else:
        yield '<p class="nothing">There is nothing to advise.</p>'
    yield "</section>"


def _section(name: str, answers: Sequence[Answer], content: ReportContent) -> Iterator[str]:
    yield f'<section id="{_anchor(name)}"><h2>{name}</h2><div class="figures">'
    if name == "Requests":
        yield from _worth(content)
    for answer in answers:
        yield from _figure(answer, content)
    yield "</div></section>"


def _worth(content: ReportContent) -> Iterator[str]:
    """The similarity of requests in words, since it is a single number."""
    found = content.similarity
    if not found:
        yield (
            '<p class="nothing">The archive has no searches for topics. For requests in a file: '
            "<code>heliograph pipeline report --requests requests.jsonl</code></p>"
        )
        return
    source = f"the file {_text(content.requests)}" if content.requests else "searches for topics in the archive"
    tiles = [
        _tile(f"{found['similarity']:.3g}", "similarity"),
        _tile(f"{100 * found['saved_by_sharing']:.3g} %", "saved by sharing"),
        *(_tile(short_number(found[key]), told) for key, told in WORTH.items() if found[key]),
    ]
    yield (
        f'<div class="wide"><p class="lead">Of {source}. Similarity is 0 if no request covers another one, and 1 if '
        "all form one block. Sharing saves the requests that another one covers: they need not travel.</p>"
        f'<ul class="tiles">{"".join(tiles)}</ul></div>'
    )


def _figure(answer: Answer, content: ReportContent) -> Iterator[str]:
    kind = "wide" if isinstance(answer.chart, OverTime) else "half"
    yield f'<figure class="{kind}" id="{answer.name}"><figcaption><h3>{answer.title}</h3>'
    yield f'<p class="lead">{answer.lead}</p></figcaption>'
    if answer.rows:
        yield from _drawing(draw(answer.name, answer.title, answer.chart, answer.rows, content.period))
    else:
        yield f'<p class="nothing">{answer.nothing}</p>'
    numbers = _numbers(answer.rows) if answer.rows else ""
    sql = f"<details><summary>SQL</summary><pre>{escape(answer.sql)}</pre></details>" if answer.sql else ""
    yield f'<div class="more">{numbers}{sql}</div></figure>'


def _drawing(drawing: Drawing) -> Iterator[str]:
    if drawing.legend:
        items = "".join(
            f'<li><i class="c{each.colour}"></i><span title="{_text(each.name)}">{_text(each.name)}</span>'
            f"<em>{_text(each.told)}</em></li>"
            for each in drawing.legend
        )
        yield f'<ul class="legend">{items}</ul>'
    yield f'<div class="{"on-wide" if drawing.narrow else ""}">{drawing.wide}</div>'
    if drawing.narrow:
        yield f'<div class="on-narrow">{drawing.narrow}</div>'


def _numbers(rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in rows[0])
    body = "".join(f"<tr>{''.join(_cell(value) for value in row.values())}</tr>" for row in rows[:ROWS_SHOWN_MAX])
    more = f"<p>the first {ROWS_SHOWN_MAX} of {len(rows):,} rows</p>" if len(rows) > ROWS_SHOWN_MAX else ""
    return (
        f'<details><summary>Numbers</summary><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}</details>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, int | float):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{'<i>others</i>' if value is None else _text(value)}</td>"
