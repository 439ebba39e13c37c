"""The page of a report: harmless whatever the network says, and legible on every screen. No Spark is needed for it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from heliograph.maps.cells import readable
from heliograph.pipeline.report.charts import NARROW, OTHER_NAMES, draw
from heliograph.pipeline.report.page import page
from heliograph.pipeline.report.questions import QUESTIONS, TOP, OverTime
from tests.browser.opened import needs_browser, opened, outside, overlapping, shown, too_faint, too_small
from tests.pipeline.reported import BAD, PERIOD, nothing, reported

pytestmark = [pytest.mark.slow, pytest.mark.req("S9")]
PLAIN = tuple(f"plant/hall-{number}/temperature" for number in range(TOP))


class Read(HTMLParser):
    """Which elements and attributes a page has, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def bad() -> str:
    return page(reported())


def test_names_of_the_network_are_text_and_nothing_else(bad: str) -> None:
    read = Read(bad)
    assert read.elements.isdisjoint(
        {"script", "img", "iframe", "object", "embed", "link", "base", "foreignobject", "u"}
    )
    assert {name for name, _ in read.attributes if name.startswith("on")} == set()
    links = {value for name, value in read.attributes if name in ("href", "src", "xlink:href", "action")}
    assert {link for link in links if not link.startswith("#")} == set()
    said = "".join(read.texts)
    for name in BAD[:-1]:
        assert readable(name.encode()) in said
    assert not any(sign in said for sign in "\u202e\x00\x1b")
    assert "fill: #f0f001" in said, "colours are replaced in styles only"
    styles = {value for name, value in read.attributes if name == "style"}
    assert not any(re.search(r"#f0f0\d\d", style) for style in styles)


def test_a_legend_has_ten_names_the_largest_first_and_all_others_last() -> None:
    (topics, *_) = QUESTIONS["Traffic"]
    assert isinstance(topics.chart, OverTime)
    rows = [
        {"time": "2026-11-16 10:00:00", "topic": name, "per_s": value}
        for value, name in enumerate([None, *reversed(PLAIN)], 1)
    ]
    rows[0]["per_s"] = 99.0
    legend = draw("x", "x", topics.chart, rows, PERIOD).legend
    assert [each.name for each in legend] == [*PLAIN, OTHER_NAMES]
    assert [each.colour for each in legend] == [*range(1, TOP + 1), 0]


def test_figures_without_rows_say_why() -> None:
    text = page(nothing())
    for question in (question for questions in QUESTIONS.values() for question in questions):
        assert question.nothing in text
    assert "There is nothing to advise." in text
    assert "<svg" not in text


@needs_browser
@pytest.mark.live
def test_the_page_is_legible_in_a_browser_in_both_themes_and_on_a_telephone(bad: str, tmp_path: Path) -> None:
    plain, worst = tmp_path / "plain.html", tmp_path / "worst.html"
    plain.write_text(page(reported(PLAIN)), "utf-8")
    worst.write_text(bad, "utf-8")
    with opened() as browser:
        papers = set()
        for width, theme in ((1100, "light"), (400, "dark")):
            for file in (plain, worst):
                with shown(browser, file, width, theme) as (seen, told):
                    assert told == [], "it runs nothing and loads nothing"
                    assert seen.evaluate("() => document.documentElement.scrollWidth") <= width
                    assert too_small(seen) == []
                    assert too_faint(seen) == []
                    assert outside(seen) == []
                    if file == plain:
                        assert overlapping(seen) == []
                    papers.add(seen.evaluate("() => getComputedStyle(document.body).backgroundColor"))
        assert len(papers) == 2
        with shown(browser, plain, 400, "light") as (seen, _):
            before = seen.screenshot()
            seen.get_by_label("dark").check(force=True)
            assert seen.screenshot() != before, "a reader may choose the theme"
            visible = seen.locator("#topics svg >> visible=true")
            assert visible.count() == 1
            assert (visible.get_attribute("viewBox") or "").split()[2] == str(NARROW)
            seen.locator("#topics summary", has_text="SQL").click()
            assert "from events" in seen.locator("#topics pre").inner_text()
