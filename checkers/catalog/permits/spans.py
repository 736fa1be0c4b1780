"""When changes may have been under way, by the names that they touch."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.catalog.history import CatalogOperation
from checkers.linearizability import UNKNOWN
from harness.ops import History, OpType

Span = tuple[float, float]
"""Call and return, as indices of ops."""


def until(history: History, end: int) -> History:
    """The history as it was before op `end`: what was open then may still take effect."""
    return History(op for op in history if op.index < end)


def creates_by_name(history: History) -> dict[str, list[tuple[str, Span]]]:
    """The nonce of each create and when it may have been under way, also of those that failed."""
    found: dict[str, list[tuple[str, Span]]] = {}
    for pair in history.pairs:
        call, done = pair.invoke, pair.completion
        if call.f == "create" and isinstance(call.value, dict):
            lost = done is None or done.type is OpType.INFO
            end = float("inf") if lost else float(done.index)  # type: ignore[union-attr]
            nonce = str(call.value.get("nonce") or f"op {call.index}")
            found.setdefault(str(call.value.get("name")), []).append((nonce, (call.index, end)))
    return found


def spans_by_name(operations: Sequence[CatalogOperation], *kinds: type) -> dict[str, list[Span]]:
    """When such changes may have been under way, by each name that they touch."""
    found: dict[str, list[Span]] = {}
    for operation in operations:
        given = operation.input
        refused = operation.said is not UNKNOWN and operation.said.result != "ok"
        if not isinstance(given, kinds) or refused:
            continue
        end = float("inf") if operation.return_time is None else operation.return_time
        for name in {given.name, getattr(given, "new_name", given.name)}:  # type: ignore[union-attr]
            found.setdefault(name, []).append((operation.call, end))
    return found


def overlaps(spans: Sequence[Span], operation: CatalogOperation) -> bool:
    """Whether any of the spans meets that of an operation that returned."""
    end = operation.return_time
    return any(begin < (end or 0) and over > operation.call for begin, over in spans)
