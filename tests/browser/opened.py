"""A browser of this machine, opened for a test.

In:    Chromium, as Debian and Ubuntu install it (`make browser`); nothing is downloaded.
Out:   needs_browser, which skips a test with the reason; opened(); what is wrong with a page that is shown.
State: the browser's process, which ends with the block.
Not here: what the pages are (tests/pipeline/test_report_page.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
SMALLEST_PX = 9.0  # of letters
CONTRAST_MIN = 4.5  # WCAG AA


def program() -> str | None:
    """The browser of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(program() is None, reason="there is no Chromium here; `make browser` installs it")


@contextmanager
def opened() -> Iterator[Any]:
    """The browser, without windows. Its sandbox needs a user who is not root."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def shown(browser: Any, file: Path, width: int, theme: str = "light") -> Iterator[tuple[Any, list[str]]]:
    """A page, and what it did that a page without scripts and servers does not do."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce")
    page, told = context.new_page(), []
    page.on("console", lambda message: told.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: told.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (told.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: told.append(f"request: {request.url}") if request.url != address else None)
    address = file.absolute().as_uri()
    try:
        page.goto(address)
        yield page, told
    finally:
        context.close()


# Texts of drawings that are seen: where they are, how large, and in which colour.
_TEXTS = """() => [...document.querySelectorAll('svg')].filter(svg => svg.checkVisibility()).flatMap((svg, number) =>
  [...svg.querySelectorAll('text')].map(text => {
    const box = text.getBoundingClientRect(), scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return {figure: svg.closest('figure').id, text: text.textContent, left: box.left, right: box.right, top: box.top,
            bottom: box.bottom, size: parseFloat(getComputedStyle(text).fontSize) * scale};
  }))"""
_FAINT = """least => {
  const light = color => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (c !== 'rgba(0, 0, 0, 0)' && e.tagName !== 'text') return c; } return 'rgb(255, 255, 255)'; };
  const found = [];
  for (const e of document.querySelectorAll('h1,h2,h3,p,a,li,span,em,b,code,summary,text,label,footer')) {
    if (!e.checkVisibility() || !e.textContent.trim()) continue;
    const own = e.tagName === 'text' ? getComputedStyle(e).fill : getComputedStyle(e).color;
    const [x, y] = [light(own), light(behind(e))].sort((a, b) => b - a), ratio = (x + 0.05) / (y + 0.05);
    if (ratio < least) found.push(`${e.tagName} ${e.textContent.slice(0, 40)}: ${ratio.toFixed(1)}`);
  }
  return found; }"""


def overlapping(page: Any) -> list[str]:
    """Pairs of texts of a drawing that cover each other."""
    texts = page.evaluate(_TEXTS)
    return [
        f"{one['figure']}: {one['text']!r} and {other['text']!r}"
        for number, one in enumerate(texts)
        for other in texts[number + 1 :]
        if one["figure"] == other["figure"] and _meet(one, other)
    ]


def _meet(one: dict[str, Any], other: dict[str, Any]) -> bool:
    across = min(one["right"], other["right"]) - max(one["left"], other["left"])
    down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return across > 1 and down > 2


def too_small(page: Any) -> list[str]:
    """Texts of drawings that are too small to read."""
    return [f"{each['figure']}: {each['text']!r}" for each in page.evaluate(_TEXTS) if each["size"] < SMALLEST_PX]


def outside(page: Any) -> list[str]:
    """Texts of drawings that are not on the page."""
    width = page.evaluate("() => document.documentElement.clientWidth")
    return [
        f"{each['figure']}: {each['text']!r}"
        for each in page.evaluate(_TEXTS)
        if each["left"] < 0 or each["right"] > width + 0.5
    ]


def too_faint(page: Any) -> list[str]:
    """Texts that stand out too little from what is behind them."""
    found: list[str] = page.evaluate(_FAINT, CONTRAST_MIN)
    return found
