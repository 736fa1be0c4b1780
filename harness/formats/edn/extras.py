"""Moves fields that only some of Jepsen's tests have from ops into the values of these ops.

| test | field of an op | in the value |
|---|---|---|
| kafka | `:rebalance-log [{:keys [k]} ...]` | one more micro-operation: `["rebalance", [k, ...]]` |
| kafka | `:seek-to-beginning? true` of an assign | `{"keys": [...], "from_start": true}` |
| causal | `:position p, :link l` | `{"value": v, "position": p, "link": l}` |
| pn-counter | `:final? true` of a number that was read | `{"value": n, "final": true}` |

The models `kafka`, `causal` and `counter-final` read these forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_CAUSAL: Final = frozenset({"read", "read-init", "write"})
_LOGS: Final = frozenset({"poll", "txn"})


def with_extras(
    form: Mapping[str, Any], f: object, value: Any, value_of: Callable[[Any], Any]
) -> Any:
    """Return the value of a client's op, with the additional fields of its form.

    `value_of` converts a field; it has already converted `value`.
    """
    if f in _LOGS and ":rebalance-log" in form and isinstance(value, list):
        log = value_of(form[":rebalance-log"])
        entries = [entry for entry in log or () if isinstance(entry, Mapping)]
        keys = [key for entry in entries for key in entry.get("keys") or ()]
        return [*value, ["rebalance", keys]] if keys else value
    if f == "assign" and form.get(":seek-to-beginning?") is True:
        return {"keys": value, "from_start": True}
    if f in _CAUSAL and ":link" in form:
        # With jepsen.independent, the value is [key value].
        inner = value[1] if isinstance(value, list) and len(value) == 2 else value
        position, link = value_of(form.get(":position")), value_of(form[":link"])
        fields = {"value": inner, "position": position, "link": link}
        return fields if inner is value else [value[0], fields]
    if f == "read" and type(value) is int and form.get(":final?") is True:
        return {"value": value, "final": True}
    return value
