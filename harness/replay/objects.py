"""Formats the objects of a target's code that its tasks use, field by field, as text.

The search begins with the local variables of waiting tasks, and continues with the fields of each
object. Records (structs, named tuples, dataclasses that have only values) are not objects here:
they are written inside the field that contains them. The text contains no addresses, and sets are
sorted, so it is the same in every replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import inspect
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import FrameType, ModuleType
from typing import Any, Final

import msgspec

from harness.replay.view import ObjectView

OBJECTS_MAX: Final = 80
OF_ONE_CLASS_MAX: Final = 4
FIELDS_MAX: Final = 60
ITEMS_MAX: Final = 12
DEPTH_MAX: Final = 4
TEXT_MAX: Final = 300
BYTES_SHOWN_MAX: Final = 32
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
_NOT_OF_TARGETS: Final = frozenset({*sys.stdlib_module_names, "harness", "msgspec", "numpy"})
_SCALARS: Final = (bool, int, float, str, type(None))


class Objects:
    """Collects the objects of one node."""

    def __init__(self) -> None:
        self._left_out: set[int] = set()
        self._names: dict[int, str] = {}
        self._found: list[tuple[Any, str, str]] = []
        self._counts: dict[str, int] = {}

    def collect(self, stacks: Iterable[tuple[str, Sequence[FrameType]]]) -> list[ObjectView]:
        """Return the objects that tasks use, starting from the names and frames of the tasks."""
        queue: deque[tuple[Any, str]] = deque()
        for task, frames in stacks:
            for frame in frames:
                local = frame.f_locals
                queue += [(local[name], f"task {task}") for name in local]
        while queue:
            value, user = queue.popleft()
            if not _is_object(value) or id(value) in self._names:
                continue
            of_class = self._counts.get(type(value).__name__, 0)
            if of_class >= OF_ONE_CLASS_MAX or len(self._found) >= OBJECTS_MAX:
                self._left_out.add(id(value))
                continue
            name = self._named(value)
            self._found.append((value, name, user))
            queue += [(each, name) for each in _parts(value)]
        return [
            ObjectView(name=name, used_by=user, fields=self._fields(value))
            for value, name, user in self._found
        ]

    @property
    def left_out(self) -> int:
        """The number of objects beyond `OBJECTS_MAX`, or beyond `OF_ONE_CLASS_MAX` of a class.

        Objects that are only reachable through these objects are not counted.
        """
        return len(self._left_out)

    def live(self) -> dict[str, Any]:
        """Return the collected objects themselves by name."""
        return {name: value for value, name, _ in self._found}

    def _named(self, value: Any) -> str:
        kind = type(value).__name__
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        name = kind if number == 1 else f"{kind}_{number}"
        self._names[id(value)] = name
        return name

    def _fields(self, value: Any) -> dict[str, str]:
        fields = fields_of(value)
        texts = {name: self.text(each) for name, each in list(fields.items())[:FIELDS_MAX]}
        if len(fields) > FIELDS_MAX:
            texts["..."] = f"{len(fields) - FIELDS_MAX} more fields"
        return texts

    # --- values as text ------------------------------------------------------------------------

    def text(self, value: Any) -> str:
        """Return a value as one line of at most `TEXT_MAX` characters."""
        text = self._text(value, DEPTH_MAX)
        return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."

    def _text(self, value: Any, depth: int) -> str:
        if (name := self._names.get(id(value))) is not None:
            return f"<{name}>"
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, _SCALARS):
            return repr(value)
        if isinstance(value, (bytes, bytearray)):
            more = "..." if len(value) > BYTES_SHOWN_MAX else ""
            return f"{len(value)} bytes {bytes(value[:BYTES_SHOWN_MAX])!r}{more}"
        if isinstance(value, asyncio.Task):
            return f"<task {value.get_name()}>"
        if isinstance(value, asyncio.Future):
            return f"<future {'done' if value.done() else 'pending'}>"
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, AbstractSet):
            texts = sorted(self._text(e, 1) for e in value)
            return f"{{{self._cut(texts[:ITEMS_MAX], len(texts))}}}"
        if isinstance(value, (list, tuple, deque)) and not hasattr(value, "_fields"):
            texts = [self._text(e, depth - 1) for e in list(value)[:ITEMS_MAX]] if depth else []
            return f"[{self._cut(texts, len(value))}]"
        if callable(value):
            return f"<{getattr(value, '__qualname__', type(value).__name__)}>"
        fields = fields_of(value) if depth and _is_record(value) else {}
        if not fields:
            return f"<{type(value).__name__}>"
        inner = [f"{k}={self._text(v, depth - 1)}" for k, v in list(fields.items())[:ITEMS_MAX]]
        return _ADDRESS.sub("0x...", f"{type(value).__name__}({self._cut(inner, len(fields))})")

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> str:
        if not depth:
            return f"{{{len(value)} items}}" if value else "{}"
        items = list(value.items())[:ITEMS_MAX]
        texts = [f"{self._text(k, 1)}: {self._text(v, depth - 1)}" for k, v in items]
        return f"{{{self._cut(texts, len(value))}}}"

    @staticmethod
    def _cut(texts: list[str], total: int) -> str:
        more = total - len(texts)
        return ", ".join([*texts, *([f"... {more} more"] if more > 0 else [])])


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of an object by name, without calling properties."""
    if isinstance(value, tuple):
        return dict(zip(getattr(value, "_fields", ()), value, strict=False))
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    fields: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__):
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):  # this slot has no value
                fields[name] = object.__getattribute__(value, name)
    fields |= getattr(value, "__dict__", {})
    return {name: each for name, each in fields.items() if not name.startswith("__")}


def _parts(value: Any) -> Iterable[Any]:
    """Yield the objects in an object's fields, or in containers there, one level deep."""
    for each in fields_of(value).values():
        if isinstance(each, Mapping):
            yield from list(each.values())[:ITEMS_MAX]
        elif isinstance(each, (list, tuple, deque)):
            yield from list(each)[:ITEMS_MAX]
        elif inspect.ismethod(each):
            yield each.__self__
        else:
            yield each


def _is_record(value: Any) -> bool:
    return isinstance(value, (msgspec.Struct, tuple)) or dataclasses.is_dataclass(value)


def _is_object(value: Any) -> bool:
    """Whether a value is an object of the target's code, and not a record, class or function."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in _NOT_OF_TARGETS or isinstance(value, ModuleType):
        return False
    return not (_is_record(value) or isinstance(value, (enum.Enum, type, BaseException)))
