"""The shapes of operations: what a template for an operation takes, returns and may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

__all__ = ["SHAPES", "Answer", "Shape"]

_DISPENSABLE: Final = frozenset({"key", "client", "lease_ms"})
"""Arguments that a template may leave out.

A file may be for one object, a session may hold a lock, and a system may have leases of its own.
"""

Answer = Literal["ran", "done", "whether", "value", "list", "pairs", "raw"]
"""The kind of value that `Session.perform` returns.

"ran": null, whether or not anything changed. "done": null; a request without effect is declined.
"whether": whether the request took effect. "value": a plain JSON value, null if there is none.
"list": a list of such values. "pairs": a table, or a list of pairs. "raw": the whole answer as
plain data, for probes.
"""


class Shape(NamedTuple):
    """The arguments of one operation, and the kind of answer that its template must return.

    `changes`: it may change something. `optional`: a file may lack a template for it. `keyed`: the
    workload uses several keys.
    """

    arguments: frozenset[str]
    answer: Answer
    changes: bool = True
    optional: bool = False
    keyed: bool = False

    @property
    def needed(self) -> frozenset[str]:
        """The arguments that a template must use.

        Otherwise the system does something else than the history says, and is blamed for it.
        """
        return self.arguments - (_DISPENSABLE - {"key"} if self.keyed else _DISPENSABLE)


def _shape(
    names: str,
    answer: Answer,
    *,
    changes: bool = True,
    optional: bool = False,
    keyed: bool = False,
) -> Shape:
    return Shape(frozenset(names.split()), answer, changes, optional, keyed)


_REGISTER: Final = {
    "read": _shape("key", "value", changes=False),
    "write": _shape("key value", "done"),
    "cas": _shape("key old new", "whether", optional=True),
}
_TXN: Final = {"txn": _shape("mops key value", "list")}
SHAPES: Final[Mapping[str, Mapping[str, Shape]]] = {
    "register": _REGISTER,
    "registers": {f: shape._replace(keyed=True) for f, shape in _REGISTER.items()},
    "list-append": _TXN,
    "rw-register": _TXN,
    "set": {"add": _shape("key value", "done"), "read": _shape("key", "list", changes=False)},
    "counter": {
        "add": _shape("key amount", "done"),
        "read": _shape("key", "value", changes=False),
    },
    "bank": {
        "transfer": _shape("key from to amount", "whether"),
        "read": _shape("key", "pairs", changes=False),
    },
    "queue": {
        "enqueue": _shape("key value", "done"),
        "dequeue": _shape("key", "value"),
        "drain": _shape("key", "list", optional=True),
    },
    "lock": {
        "acquire": _shape("key client", "whether"),
        "release": _shape("key client", "whether"),
    },
    "lease": {
        "acquire": _shape("key client lease_ms", "value"),
        "release": _shape("key client", "whether"),
    },
    "logs": {
        "assign": _shape("keys", "ran", changes=False, optional=True),
        "send": _shape("key value", "value", keyed=True),
        "poll": _shape("key offset", "list", changes=False, keyed=True),
    },
    "ids": {"generate": _shape("key", "value")},
    "inserts": {"insert": _shape("key table id", "whether", keyed=True)},
}
"""The shapes of each vocabulary's operations.

If operations have no key, `key` is the vocabulary's name. `client` identifies the client. In a
transaction, `mops` has all micro-operations, while `key` and `value` belong to one of them. A log's
poll reads one key from `offset` on. No request assigns keys (`targets.declared.consumers`).
"""
