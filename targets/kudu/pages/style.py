"""The style sheet of all pages, with the colours, fonts and shapes of `harness serve`."""

from __future__ import annotations

from typing import Final

from targets.kudu.pages.parts import Html

ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect "
    "width='16' height='16' rx='3' fill='%23335'/%3E%3Cpath d='M4 8l3 3 5-6' stroke='%23fff' "
    "stroke-width='2' fill='none'/%3E%3C/svg%3E"
)

STYLE: Final = Html("""
:root {
  color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1d2330; --soft: #5c6575; --line: #dcdfe5;
  --hover: #eef2f8; --link: #1a56b0; --mark: #fff4cc;
  --good: #1b7a43; --wait: #8a6100; --bad: #c02626; --lead: #1a56b0; --plain: #5c6575;
  --good-soft: #e3f4ea; --wait-soft: #fdf0d0; --bad-soft: #fde4e2; --lead-soft: #e0ebfb;
  --plain-soft: #eceef1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171d; --card: #1b1f27; --ink: #e4e8ef; --soft: #9aa4b4; --line: #323844;
    --hover: #232936; --link: #86b4ff; --mark: #43390f;
    --good: #6fd39b; --wait: #f0c35a; --bad: #ff8a80; --lead: #9cc3ff; --plain: #aab3c2;
    --good-soft: #173626; --wait-soft: #3a2f10; --bad-soft: #451f1d; --lead-soft: #1c3152;
    --plain-soft: #2a303b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 3px; }
header { display: flex; flex-wrap: wrap; gap: 6px 20px; align-items: center; padding: 10px 20px;
  background: var(--card); border-bottom: 1px solid var(--line); }
.brand { font-weight: 700; font-size: 16px; color: var(--ink); white-space: nowrap; }
.brand span { color: var(--soft); font-weight: 400; }
nav { display: flex; flex-wrap: wrap; gap: 4px; }
nav a { padding: 3px 10px; border-radius: 6px; }
nav a[aria-current] { background: var(--hover); color: var(--ink); font-weight: 600; }
.self { margin-left: auto; display: flex; gap: 8px; align-items: center; color: var(--soft);
  font-size: 12px; }
main { padding: 16px 20px 32px; max-width: 1280px; margin: 0 auto; }
footer { padding: 0 20px 20px; color: var(--soft); font-size: 12px; text-align: center; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 10px; top: 10px; background: var(--card); padding: 6px; }
h1 { font-size: 20px; margin: 4px 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 26px 0 8px; }
.count { color: var(--soft); font-weight: 400; font-size: 13px; }
p { margin: 8px 0; }
code { font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere; }
td { max-width: 26em; overflow-wrap: break-word; }
td code { white-space: nowrap; }
time { font-variant-numeric: tabular-nums; white-space: nowrap; }
.muted { color: var(--soft); }
.note { background: var(--hover); border-radius: 6px; padding: 6px 10px; overflow-wrap: anywhere; }
.note.cut { background: var(--mark); }
.note.warning { background: var(--bad-soft); color: var(--bad); font-weight: 600; }
.empty { padding: 24px; text-align: center; color: var(--soft); background: var(--card);
  border: 1px dashed var(--line); border-radius: 8px; }
.badge { display: inline-block; border-radius: 5px; padding: 0 7px; font-size: 12px;
  font-weight: 600; white-space: nowrap; color: var(--plain); background: var(--plain-soft); }
.badge.good { color: var(--good); background: var(--good-soft); }
.badge.wait { color: var(--wait); background: var(--wait-soft); }
.badge.bad { color: var(--bad); background: var(--bad-soft); }
.badge.lead { color: var(--lead); background: var(--lead-soft); }
.peers { display: inline-flex; flex-wrap: wrap; gap: 4px; }
.peer { border: 1px solid var(--line); border-radius: 6px; padding: 0 7px; white-space: nowrap; }
.peer.lead { border-color: transparent; background: var(--lead-soft); font-weight: 600; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: 6px 10px; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top; }
tbody tr:last-child > * { border-bottom: 0; }
tbody tr:hover { background: var(--hover); }
thead th { font-size: 12px; color: var(--soft); font-weight: 600; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 14px 0; }
.card { display: flex; flex-direction: column; background: var(--card); color: var(--soft);
  border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.card:hover { background: var(--hover); text-decoration: none; }
.number { font-size: 22px; font-weight: 600; color: var(--ink);
  font-variant-numeric: tabular-nums; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr));
  gap: 10px 20px; margin: 14px 0; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 12px 14px; }
.facts dt { font-size: 12px; color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  header, main, footer { padding-left: 12px; padding-right: 12px; }
  .self { margin-left: 0; }
}
""")
