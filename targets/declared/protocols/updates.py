"""The operations of all vocabularies as pure functions of items, for stores with versions.

A transaction uses one item per key. Every other object is a single item: a set is stored as a list,
a lock as the name of its holder, and a bank as a table of balances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.errors import UsageError, shown
from targets.declared.protocols import MalformedError, Protocol, Template
from targets.declared.protocols.text import encoded
from targets.declared.protocols.versioned import Items, Read, Update, Write

__all__ = ["BANK", "CAS", "VersionedProtocol", "built_in", "played"]

Arguments = Mapping[str, Any]
_MESSAGES_MAX: Final = 100
BANK: Final = {str(account): 10 for account in range(8)}
"""The accounts and balances with which the workload `bank` begins."""


def played(mops: Sequence[Any], items: Items) -> tuple[list[list[Any]], dict[str, Any]]:
    """Apply a transaction to items; return its answer, and the new values of the changed items.

    Items are lists in a transaction with appends, and registers in a transaction with writes.
    """
    now, changed, answer = dict(items), {}, []
    for f, key, element in mops:
        if f == "append":
            now[key] = changed[key] = [*_list(now[key]), element]
        elif f == "w":
            now[key] = changed[key] = element
        answer.append([f, key, now[key] if f == "r" else element])
    return answer, changed


def _play(items: Items, arguments: Arguments) -> tuple[Any, Items]:
    return played(arguments["mops"], items)


def _keys(arguments: Arguments) -> Sequence[str]:
    return [*dict.fromkeys(key for _, key, _ in arguments["mops"])]


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedError(f"the item must be a list, and is {shown(value)}")
    return value


def _table(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedError(f"the item must be a table, and is {shown(value)}")
    return value


def _number(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedError(f"the item must be a whole number, and is {shown(value)}")
    return value


def _one(change: Callable[[Any, Arguments], tuple[Any, Any]]) -> Update:
    """Return an operation on the item `{key}`, from a function of its value.

    The function returns the answer and the new value. An unchanged value is not written.
    """

    def changed(items: Items, arguments: Arguments) -> tuple[Any, Items]:
        (key,) = items
        answer, new = change(items[key], arguments)
        return answer, {} if encoded(new) == encoded(items[key]) else {key: new}

    return Update(lambda arguments: [arguments["key"]], changed)


def _cas(items: Items, arguments: Arguments) -> tuple[bool, Items]:
    key = arguments["key"]
    same = encoded(items[key]) == encoded(arguments["old"])
    return same, {key: arguments["new"]} if same else {}


def _transfer(value: Any, arguments: Arguments) -> tuple[bool, Any]:
    source, target = str(arguments["from"]), str(arguments["to"])
    balances, amount = dict(_table(value)), arguments["amount"]
    if source not in balances or target not in balances:
        raise MalformedError(f"no account {source} or {target} in {shown(balances)}")
    if _number(balances[source]) < amount:
        return False, value
    balances[source] -= amount
    balances[target] = _number(balances[target]) + amount
    return True, balances


def _dequeue(value: Any, _: Arguments) -> tuple[Any, Any]:
    queue = _list(value)
    return (queue[0], queue[1:]) if queue else (None, value)


def _messages(value: Any, arguments: Arguments) -> tuple[Any, Any]:
    start = arguments["offset"]
    part = _list(value)[start : start + _MESSAGES_MAX]
    return [[start + n, message] for n, message in enumerate(part)], value


def _acquire(value: Any, arguments: Arguments) -> tuple[bool, Any]:
    return (True, arguments["client"]) if value is None else (False, value)


def _release(value: Any, arguments: Arguments) -> tuple[bool, Any]:
    return (True, None) if value == arguments["client"] else (False, value)


def _next(value: Any, _: Arguments) -> tuple[int, int]:
    number = _number(value) + 1
    return number, number


CAS: Final = Update(lambda arguments: [arguments["key"]], _cas)
_TXN: Final = Update(_keys, _play)
_OPEN_BANK: Final = Update(
    lambda _: ["bank"], lambda items, _: (None, {} if items["bank"] else {"bank": BANK})
)


def _one_item(key: str, update: Update) -> Update:
    """Adapt an operation to a store that changes only one item at a time.

    All items of the operation become entries of the item `key`.
    """

    def change(items: Items, arguments: Arguments) -> tuple[Any, Items]:
        entries = _table(items[key])
        inner = {each: entries.get(each) for each in update.keys(arguments)}
        answer, changed = update.change(inner, arguments)
        return answer, {key: {**entries, **changed}} if changed else {}

    return Update(lambda _: [key], change)


def _templates(*, several_items: bool) -> dict[str, dict[str, Template]]:
    def transactions(name: str) -> dict[str, Template]:
        return {"txn": _TXN if several_items else _one_item(name, _TXN)}

    return {
        "register": {"read": Read(), "write": Write(), "cas": CAS},
        "list-append": transactions("list-append"),
        "rw-register": transactions("rw-register"),
        "set": {
            "add": _one(lambda value, a: (None, [*_list(value), a["value"]])),
            "read": Read(),
        },
        "counter": {
            "add": _one(lambda value, a: (None, _number(value) + a["amount"])),
            "read": Read(),
        },
        "bank": {"transfer": _one(_transfer), "read": Read()},
        "queue": {
            "enqueue": _one(lambda value, a: (None, [*_list(value), a["value"]])),
            "dequeue": _one(_dequeue),
            "drain": _one(lambda value, _: (_list(value), [] if value else value)),
        },
        "lock": {"acquire": _one(_acquire), "release": _one(_release)},
        "ids": {"generate": _one(_next)},
        "logs": {
            "send": _one(lambda value, a: (len(_list(value)), [*_list(value), a["value"]])),
            "poll": _one(_messages),
        },
    }


class VersionedProtocol(Protocol):
    """The protocol of a store with versions, which needs no templates in the file.

    `several_items` says whether the store can change several items at once.
    """

    several_items: ClassVar[bool] = False

    def defaults(self) -> Mapping[str, Mapping[str, Template]]:
        return _templates(several_items=self.several_items)

    def setup(self, vocabulary: str) -> Sequence[Template]:
        return (_OPEN_BANK,) if vocabulary == "bank" else ()


def built_in(store: str, where: str, written: object) -> UsageError:
    """Return the error for a template in the file. This store allows no templates."""
    return UsageError(
        f"{where} is {shown(written)}: {store}'s operations are built in; remove it, or use the "
        "protocol 'program' for others"
    )
