"""The style of a report: its colours in both themes, and where things stand on wide and on narrow screens.

In:    nothing.
Out:   STYLE, the text of a style sheet.
State: none.
Not here: the page (page.py). The colours of names are also counted in themed_svg.py (SERIES).
"""

STYLE = """
:root { color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --paper: light-dark(#ffffff, #14181d); --raised: light-dark(#f5f6f8, #1d232a);
  --ink: light-dark(#1b2127, #e6e9ed); --faint: light-dark(#586470, #a3adb8); --grid: light-dark(#d9dee3, #343c45);
  --tint: light-dark(#eef2f6, #1f262e); --link: light-dark(#1d5c9c, #7db7f0); --alarm: light-dark(#c02a2a, #ff7d73);
  --others: light-dark(#a5acb4, #6c7681);
  --c1: light-dark(#2463a6, #6aa9ea); --c2: light-dark(#c7591c, #f2975c); --c3: light-dark(#2b7d46, #62bd7e);
  --c4: light-dark(#7d4fa3, #bd93df); --c5: light-dark(#a67c00, #dcb53c); --c6: light-dark(#b8336a, #ec7ba6);
  --c7: light-dark(#16807f, #4fc0be); --c8: light-dark(#7a5c3d, #c3a17f); --c9: light-dark(#5b6ee1, #98a5ff);
  --c10: light-dark(#6d8b1f, #abc95c); }
:root:has(#light:checked) { color-scheme: light; }
:root:has(#dark:checked) { color-scheme: dark; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 24px 64px; max-width: 960px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 var(--font); }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 48px 0 12px; padding-bottom: 6px; border-bottom: 1px solid var(--grid); }
h3 { font-size: 16px; margin: 0; }
p { margin: 0 0 10px; }
a { color: var(--link); }
.lead { color: var(--faint); max-width: 84ch; }
figcaption .lead { margin-bottom: 8px; font-size: 14px; }
code, pre { font: 12.5px/1.5 var(--mono); }
code { overflow-wrap: anywhere; }
.themes { float: right; border: 1px solid var(--grid); border-radius: 6px; overflow: hidden; font-size: 13px;
  margin: 4px 0 8px 16px; }
.themes label { display: inline-block; padding: 3px 10px; color: var(--faint); cursor: pointer; }
.themes input { position: absolute; opacity: 0; }
.themes label:has(:checked) { background: var(--raised); color: var(--ink); font-weight: 600; }
.themes label:has(:focus-visible) { outline: 2px solid var(--link); outline-offset: -2px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 18px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 10px; list-style: none;
  padding: 0; margin: 18px 0 0; }
.tiles li { background: var(--raised); border-radius: 8px; padding: 10px 14px; }
.tiles b { display: block; font-size: 22px; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--faint); font-size: 13px; }
.figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 36px 40px; align-items: start; }
figure { margin: 0; min-width: 0; }
.wide { grid-column: 1 / -1; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.on-narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; list-style: none; padding: 0; margin: 0 0 8px;
  font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 7px; min-width: 0; max-width: 100%; }
.legend i { flex: none; width: 11px; height: 11px; border-radius: 3px; }
.legend span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 34ch; }
.legend em { color: var(--faint); font-style: normal; font-variant-numeric: tabular-nums; white-space: nowrap; }
.c0 { background: var(--others); } .c1 { background: var(--c1); } .c2 { background: var(--c2); }
.c3 { background: var(--c3); } .c4 { background: var(--c4); } .c5 { background: var(--c5); }
.c6 { background: var(--c6); } .c7 { background: var(--c7); } .c8 { background: var(--c8); }
.c9 { background: var(--c9); } .c10 { background: var(--c10); }
.nothing { background: var(--raised); border-radius: 8px; padding: 12px 16px; color: var(--faint); }
.advice { padding-left: 22px; margin: 18px 0 0; }
.advice li { margin-bottom: 6px; overflow-wrap: anywhere; }
.more { display: flex; flex-wrap: wrap; gap: 2px 18px; margin-top: 6px; }
details { font-size: 13px; min-width: 0; max-width: 100%; }
details[open] { flex-basis: 100%; }
summary { color: var(--faint); cursor: pointer; width: max-content; }
details > p { color: var(--faint); }
pre { background: var(--raised); border-radius: 8px; padding: 12px 14px; margin: 6px 0 0; overflow-x: auto;
  max-width: 100%; }
.scroll { overflow: auto; max-height: 420px; margin-top: 6px; border: 1px solid var(--grid); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--raised); text-align: left; font-weight: 600; }
th, td { padding: 4px 12px; white-space: nowrap; max-width: 44ch; overflow: hidden; text-overflow: ellipsis; }
tr + tr td { border-top: 1px solid var(--grid); }
.number { text-align: right; }
footer { margin-top: 56px; padding-top: 14px; border-top: 1px solid var(--grid); color: var(--faint); font-size: 13px; }
@media (max-width: 700px) {
  body { padding: 16px 16px 48px; }
  h1 { font-size: 22px; clear: both; }
  .figures { grid-template-columns: minmax(0, 1fr); }
  .on-wide { display: none; }
  .on-narrow { display: block; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .themes { margin-bottom: 12px; }
}
@media print {
  :root { color-scheme: light; }
  .themes, nav { display: none; }
  figure { break-inside: avoid; }
}
"""
