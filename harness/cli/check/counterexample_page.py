"""Draws an invalid history as one HTML file, which needs no server and no network.

The picture is a canvas that draws only the visible part, so scrolling stays smooth with 10,000
operations. The data are JSON in the page, escaped so that no text can end the script element. The
script shows text only through `textContent`. A content security policy forbids everything outside
the file. Drawings (SVG) are embedded as images, whose scripts do not run.

The horizontal axis is the order of events in the history, not clock time: most checkers depend only
on this order, and short operations stay visible.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import msgspec

from harness.errors import counted
from harness.ops import CheckResult, Counterexample, History, Op, OpType, Pair
from harness.support.html_template import filled, script_safe

OPS_SHOWN_MAX: Final = 20_000
LABEL_CHARS_MAX: Final = 200
SENTENCES_MAX: Final = 100


def render_page(
    history: History,
    results: Sequence[CheckResult],
    counterexample: Counterexample,
    *,
    path: str,
    model: str,
) -> str:
    """Return the HTML page about an invalid history; `results` are from failed checks."""
    explanation = [line for result in results for line in result.explanation]
    if len(explanation) > SENTENCES_MAX:
        rest = len(explanation) - SENTENCES_MAX
        explanation = [*explanation[:SENTENCES_MAX], f"... and {counted(rest, 'more sentence')}"]
    reason = "; ".join(result.reason for result in results)
    drawings = [svg for result in results for svg in result.details.get("drawings", ())]
    rows, lanes, cut = _rows(history, counterexample)
    if cut:
        explanation.append(f"Of {len(history.pairs)} operations, {len(rows)} are shown.")
    positions = [row[2] for row in rows] + [row[3] for row in rows if row[3] is not None]
    data = {
        "verdict": "invalid",
        "path": path,
        "model": model,
        "reason": reason,
        "explanation": explanation,
        "ops": rows,
        "lanes": lanes,
        "failing": counterexample.failing,
        "core": counterexample.core[:OPS_SHOWN_MAX],
        "core_total": len(counterexample.core),
        "orders": [msgspec.to_builtins(order) for order in counterexample.orders],
        "drawings": [base64.b64encode(svg.encode()).decode() for svg in drawings],
        "start": min(positions, default=0),
        "end": max(positions, default=0),
    }
    template = (resources.files("harness.cli.check") / "counterexample.html").read_text("utf-8")
    text = "\n".join([f"{path} ({model}): invalid", reason, *explanation])
    fillings = {
        "TITLE": html.escape(f"{path}: invalid"),
        "TEXT": html.escape(text),
        "DATA": script_safe(msgspec.json.encode(data).decode()),
    }
    return filled(template, fillings)


def _rows(
    history: History, counterexample: Counterexample
) -> tuple[list[list[Any]], list[str], bool]:
    pairs = list(history.pairs)
    cut = len(pairs) > OPS_SHOWN_MAX
    if cut:
        pairs = _nearest(pairs, counterexample)
    processes = sorted({pair.invoke.process for pair in pairs}, key=lambda p: (str(type(p)), p))
    lanes = {process: number for number, process in enumerate(processes)}
    rows = [
        [
            pair.invoke.index,
            lanes[pair.invoke.process],
            pair.invoke.index,
            None if pair.type is OpType.INFO or pair.completion is None else pair.completion.index,
            pair.type.value,
            counterexample.labels.get(pair.invoke.index) or _label(pair),
            _detail(pair),
        ]
        for pair in pairs
    ]
    return rows, [str(process) for process in processes], cut


def _nearest(pairs: list[Pair], counterexample: Counterexample) -> list[Pair]:
    """Keep at most `OPS_SHOWN_MAX` pairs: the contradiction (`core`), then its neighbours."""
    always = {*counterexample.core[: OPS_SHOWN_MAX // 2]}
    middle = counterexample.failing
    if middle is None:
        middle = min(always, default=0)
    ordered = sorted(
        pairs,
        key=lambda pair: (
            pair.invoke.index not in always,
            abs(pair.invoke.index - middle),
        ),
    )
    kept = {pair.invoke.index for pair in ordered[:OPS_SHOWN_MAX]}
    return [pair for pair in pairs if pair.invoke.index in kept]


def _label(pair: Pair) -> str:
    call, done = pair.invoke, pair.completion
    text = f"{call.f} {_value(call)}".rstrip()
    if done is not None and done.type is not OpType.INFO and done.value != call.value:
        text += f" -> {_value(done)}"
    return text if len(text) <= LABEL_CHARS_MAX else f"{text[: LABEL_CHARS_MAX - 3]}..."


def _value(op: Op) -> str:
    if op.value is None or op.value == {}:
        return ""
    return op.value if isinstance(op.value, str) else msgspec.json.encode(op.value).decode()


def _detail(pair: Pair) -> str:
    call, done = pair.invoke, pair.completion
    if done is None:
        return f"called at {call.time}, never returned"
    error = f" ({done.error[:LABEL_CHARS_MAX]})" if done.error else ""
    if done.type is OpType.INFO:
        return f"called at {call.time}, outcome unknown{error}"
    return f"{call.time} to {done.time}, {done.type.value}{error}"
