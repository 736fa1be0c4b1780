"""Describes a cycle of transactions in words and as a drawing.

Each transaction of a cycle must come before the next transaction, and the last transaction before
the first. The text names the transactions T1, T2, ... and gives the reason for each step. The
drawing shows transactions as boxes and steps as arrows, in an SVG that needs no other files.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

from checkers.elle.findings import Case, Explain, Reason, Step
from checkers.elle.infer.columns import Columns
from checkers.elle.kinds import Cycle
from checkers.elle.search.graph import PROCESS, REALTIME
from harness.errors import clipped

_CLASSES: Final = {
    "ww": "ww",
    "wr": "wr",
    "rw": "rw",
    "wrp": "wr",
    "rwp": "rw",
    "process": "order",
    "realtime": "order",
}
_STYLE: Final = """<style>
text { fill: #1b2230; stroke: none } rect { fill: #f6f8fa; stroke: #8a93a0 }
.ww { --c: #b3261e } .wr { --c: #0b57d0 } .rw { --c: #8a4b00 } .order { --c: #5f6368 }
g path { stroke: var(--c); fill: none } g polygon, g text { fill: var(--c) }
@media (prefers-color-scheme: dark) {
text { fill: #e7ebf2 } rect { fill: #1b2129; stroke: #6b7686 }
.ww { --c: #ff7b72 } .wr { --c: #79b8ff } .rw { --c: #f0b13c } .order { --c: #9aa5b5 }
}
</style>"""
_TEXT_MAX: Final = 74
_DRAWN_MAX: Final = 40
_LABEL_MAX: Final = 28
_CHARACTER_WIDTH: Final = 7.9
_BOX_WIDTH_MIN: Final = 240
# width of the margins, and of the arrow from the last box to the first, without the label
_BESIDE: Final = 100
_LABEL_CHARACTER_WIDTH: Final = 7
_BOX_HEIGHT: Final = 46
_GAP: Final = 44


def _reason(explain: Explain, source: int, target: int, relation: int) -> Reason:
    if relation == PROCESS:
        return Reason("process", "one process executed {source} before {target}")
    if relation == REALTIME:
        return Reason("realtime", "{source} completed before {target} was invoked")
    return explain(source, target, relation)


def explain_cycle(columns: Columns, explain: Explain, members: list[int], cycle: Cycle) -> Case:
    """Return the case that describes `cycle`; `members` are its transactions' rows in `columns`."""
    steps: list[Step] = []
    lines: list[str] = []
    size = len(members)
    for position, txn in enumerate(members):
        lines.append(f"T{position + 1} is op {columns.index[txn]}: {columns.render_txn(txn)}.")
    for position, relation in enumerate(cycle.relations):
        after = (position + 1) % size
        source, target = members[position], members[after]
        reason = _reason(explain, source, target, relation)
        steps.append(Step(int(columns.index[source]), int(columns.index[target]), reason))
        text = reason.tell(f"T{position + 1}", f"T{after + 1}")
        order = f"T{position + 1} < T{after + 1}, because {text}"
        lines.append(f"{order}." if after else f"However, {order}: a contradiction.")
    details: dict[str, Any] = {"relations": [step.reason.relation for step in steps]}
    operations = tuple(int(columns.index[txn]) for txn in members)
    boxes = [
        (f"T{i + 1}  op {columns.index[txn]}", columns.render_txn(txn, most=6))
        for i, txn in enumerate(members)
    ]
    return Case(
        cycle.name, tuple(lines), operations, details, tuple(steps), draw(cycle.name, boxes, steps)
    )


def _short(text: str, most: int = _TEXT_MAX) -> str:
    return _safe(clipped(text, most))


def _safe(text: str) -> str:
    """Return `text` escaped for XML, with `?` for characters that are not printable."""
    return escape("".join(char if char.isprintable() else "?" for char in text))


def draw(title: str, boxes: list[tuple[str, str]], steps: list[Step]) -> str:
    """Draw a cycle as SVG: one box per transaction, and one arrow per step."""
    drawn = boxes[:_DRAWN_MAX]
    height = 44 + len(drawn) * (_BOX_HEIGHT + _GAP) - _GAP + 20
    longest = max((min(_TEXT_MAX, len(text)) for _, text in drawn), default=0)
    wide = max(_BOX_WIDTH_MIN, round(longest * _CHARACTER_WIDTH) + 28)
    width = wide + _BESIDE + len(_label(steps[-1])) * _LABEL_CHARACTER_WIDTH
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"',
        f'  width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        _STYLE,
        f'<text x="20" y="28" font-size="16" font-weight="bold">{_safe(title)}</text>',
    ]
    for position, (name, text) in enumerate(drawn):
        y = 44 + position * (_BOX_HEIGHT + _GAP)
        parts += [
            f'<rect x="20" y="{y}" width="{wide}" height="{_BOX_HEIGHT}"',
            '  rx="6"/>',
            f'<text x="32" y="{y + 18}" font-weight="bold">{_safe(name)}</text>',
            f'<text x="32" y="{y + 37}" font-family="monospace">{_short(text)}</text>',
        ]
        if position + 1 < len(drawn):
            parts += _arrow_down(y + _BOX_HEIGHT, steps[position], position)
    last = 44 + (len(drawn) - 1) * (_BOX_HEIGHT + _GAP) + _BOX_HEIGHT // 2
    parts += _arrow_back(wide + 20, last, 44 + _BOX_HEIGHT // 2, steps[-1])
    if len(boxes) > len(drawn):
        parts.append(f'<text x="32" y="{height - 6}">... {len(boxes) - len(drawn)} more</text>')
    parts.append("</svg>")
    return "\n".join(parts)


def _label(step: Step) -> str:
    key = f" on {step.reason.key}" if step.reason.key is not None else ""
    return _short(f"{step.reason.relation}{key}", _LABEL_MAX)


def _title(step: Step) -> str:
    return f"<title>{_safe(step.reason.tell(f'op {step.source}', f'op {step.target}'))}</title>"


def _arrow_down(y: int, step: Step, position: int) -> list[str]:
    x, end = 80 + 24 * (position % 2), y + _GAP - 1
    return [
        f'<g class="{_CLASSES[step.reason.relation]}">{_title(step)}',
        f'<path d="M {x} {y} V {end - 8}"/>',
        f'<polygon points="{x - 4} {end - 9}, {x + 4} {end - 9}, {x} {end}"/>',
        f'<text x="{x + 10}" y="{y + _GAP // 2 + 5}">{_label(step)}</text></g>',
    ]


def _arrow_back(right: int, low: int, high: int, step: Step) -> list[str]:
    tip = right + 9
    return [
        f'<g class="{_CLASSES[step.reason.relation]}">{_title(step)}',
        f'<path d="M {right} {low} C {right + 70} {low}, {right + 70} {high}, {tip} {high}"/>',
        f'<polygon points="{tip} {high - 4}, {tip} {high + 4}, {right} {high}"/>',
        f'<text x="{right + 58}" y="{(low + high) // 2 + 5}">{_label(step)}</text>',
        "</g>",
    ]
