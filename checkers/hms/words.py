"""Operations of the vocabulary "hms" in sentences, and the fields of their values."""

from __future__ import annotations

from checkers.verdict.sentences import where
from harness.errors import HistoryError
from harness.ops import Op, OpType, Pair
from harness.vocabularies import fields_of
from harness.vocabularies.hms import BY_NAME, full_name

_PAST = {
    "create": "created",
    "alter": "altered",
    "rename": "renamed",
    "drop": "dropped",
    "get": "read",
}
_OTHERS = {"list": "listed all tables", "poll": "polled the events"}


def _name(op: Op, prefix: str) -> str:
    fields = fields_of(op)
    database, name = fields.get(f"{prefix}database"), fields.get(f"{prefix}name")
    if not isinstance(database, str) or not isinstance(name, str):
        raise HistoryError(
            f"op {op.index} ({op.f}) has the value {op.value!r}; it needs the texts "
            f"'{prefix}database' and '{prefix}name'"
        )
    return full_name(database, name)


def name_of(op: Op) -> str:
    """The table that an operation is about; raises `HistoryError`."""
    return _name(op, "")


def new_name_of(op: Op) -> str:
    """What a rename calls it; raises `HistoryError`."""
    return _name(op, "new_")


def sentence(pair: Pair) -> str:
    """`Process 3 dropped db1.t0 (op 12, drop, ...)`, without a full stop."""
    call, done = pair.invoke, pair.completion
    value = fields_of(done)
    who = f"Process {call.process}"
    if call.f not in _PAST:
        told = f"saw {', '.join(value.get('tables', ())) or 'none'}" if call.f == "list" else ""
        what = _OTHERS.get(call.f, f"asked for {call.f}")
        return f"{who} {what} {where(pair)}" + (f" and {told}" if told else "")
    what = name_of(call)
    if call.f == "rename":
        what += f" to {new_name_of(call)}"
    if not BY_NAME[call.f].mutates:
        is_there = value.get("result", "ok") == "ok"
        seen = f"the change {value.get('nonce')}" if is_there else "nothing there"
        return f"{who} {_PAST[call.f]} {what} {where(pair)} and saw {seen}"
    nonce = f"{what} ({fields_of(call).get('nonce')})"
    if pair.type is OpType.OK:
        return f"{who} {_PAST[call.f]} {nonce} {where(pair)}"
    told = f" and was told {value['result']}" if "result" in value else ""
    return f"{who} tried to {call.f} {nonce} {where(pair)}{told}"
