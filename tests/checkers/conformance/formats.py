"""Readers of the recorded and generated histories with known verdicts (see their README)."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from checkers.linearizability import UNKNOWN, Event, Operation
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.models.register import (
    Cas,
    MultiRegister,
    Read,
    Register,
    Txn,
    Write,
)
from tests.checkers.conformance.versioned import Input, Output, VersionedCatalog

CONFORMANCE = Path(
    os.environ.get("HARNESS_CONFORMANCE")
    or Path(__file__).resolve().parents[4] / "shared" / "conformance"
)


class Row(NamedTuple):
    file: str
    model: str
    expected: str


def rows() -> list[Row]:
    """The rows of expected.csv; none where the data set is not there."""
    table = CONFORMANCE / "expected.csv"
    if not table.is_file():
        return []
    with table.open(newline="") as lines:
        return [Row(r["file"], r["model"], r["expected"]) for r in csv.DictReader(lines)]


def load(row: Row) -> tuple[Any, list[Operation[Any, Any]]]:
    """The model and the operations of one history."""
    text = (CONFORMANCE / row.file).read_text()
    return READERS[row.model](text)


def operations_of(events: list[Event]) -> list[Operation[Any, Any]]:
    """Events by position as operations."""
    calls: dict[int, tuple[int, Event]] = {}
    found: dict[int, Operation[Any, Any]] = {}
    for position, event in enumerate(events):
        if event.is_call:
            calls[event.id] = (position, event)
            found[event.id] = Operation(event.client_id, event.value, position, UNKNOWN, None)
        else:
            call, first = calls[event.id]
            found[event.id] = Operation(first.client_id, first.value, call, event.value, position)
    return list(found.values())


def read_etcd(text: str) -> tuple[Any, list[Operation[Any, Any]]]:
    line = re.compile(r"jepsen\.util - (\d+)\s+:(\w+)\s+:(\w+)\s+(.*)$")
    events: list[Event] = []
    open_ids: dict[int, int] = {}
    dropped: set[int] = set()
    for raw in text.splitlines():
        match = line.search(raw)
        if match is None:
            continue
        process, kind, f, value = int(match[1]), match[2], match[3], match[4].strip()
        if kind == "invoke":
            open_ids[process] = len(events)
            events.append(Event(process, True, _register_input(f, value), len(events)))
            continue
        ident = open_ids.pop(process)
        if kind == "fail" and f == "read":
            dropped.add(ident)
        elif kind == "ok" or (kind == "fail" and f == "cas"):
            output: Any = None
            if f == "read":
                output = None if value == "nil" else int(value)
            elif f == "cas":
                output = kind == "ok"
            events.append(Event(process, False, output, ident))
    return Register(None), operations_of([e for e in events if e.id not in dropped])


def _register_input(f: str, value: str) -> Any:
    numbers = [int(n) for n in re.findall(r"-?\d+", value)]
    if f == "read":
        return Read()
    return Write(numbers[0]) if f == "write" else Cas(numbers[0], numbers[1])


def read_kv(text: str) -> tuple[Any, list[Operation[Any, Any]]]:
    events: list[Event] = []
    open_ids: dict[int, int] = {}
    for entry in edn("[" + text + "]"):
        process, f = entry["process"], entry["f"]
        if entry["type"] == "invoke":
            open_ids[process] = len(events)
            call = KeyValueInput(f, entry["key"], entry["value"] or "" if f != "get" else "")
            events.append(Event(process, True, call, len(events)))
        else:
            output = entry["value"] if f == "get" else None
            events.append(Event(process, False, output, open_ids.pop(process)))
    return KeyValue(), operations_of(events)


def read_knossos(text: str, *, multi: bool) -> tuple[Any, list[Operation[Any, Any]]]:
    found: list[Operation[Any, Any]] = []
    open_calls: dict[int, tuple[int, Any]] = {}
    for position, entry in enumerate(edn(text)):
        process, kind, f = entry["process"], entry["type"], entry["f"]
        if not isinstance(process, int):
            continue
        if kind == "invoke":
            open_calls[process] = (position, entry)
            continue
        call, invoked = open_calls.pop(process)
        if kind == "fail":
            continue
        known = kind == "ok"
        value = entry["value"] if known else invoked["value"]
        if multi:
            micro = Txn(tuple((m[0], m[1], m[2]) for m in value))
            found.append(Operation(process, micro, call, micro, position if known else None))
        elif f == "read":
            if known and value is not None:
                found.append(Operation(process, Read(), call, value, position))
        else:
            given = Write(value) if f == "write" else Cas(*value)
            output = True if f == "cas" else None
            found.append(Operation(process, given, call, output, position if known else None))
    for process, (call, entry) in sorted(open_calls.items()):
        value, f = entry["value"], entry["f"]
        if multi:
            micro = Txn(tuple((m[0], m[1], m[2]) for m in value))
            found.append(Operation(process, micro, call, UNKNOWN, None))
        elif f != "read":
            given = Write(value) if f == "write" else Cas(*value)
            found.append(Operation(process, given, call, UNKNOWN, None))
    return (MultiRegister({"x": 0, "y": 0}) if multi else Register(0)), found


def read_crash(text: str) -> tuple[Any, list[Operation[Any, Any]]]:
    found: list[Operation[Any, Any]] = []
    for raw in text.splitlines():
        is_write, value, call, end = (int(word) for word in raw.split())
        returned = end if end < 1_000_000 else None
        given: Any = Write(value) if is_write else Read()
        output = None if is_write else value
        found.append(Operation(0, given, call, output, returned))
    return Register(0), found


def read_catalog(text: str) -> tuple[Any, list[Operation[Any, Any]]]:
    found: list[Operation[Any, Any]] = []
    for raw in text.splitlines():
        op, name, name2, payload, result, ident, version, seen, listing, call, end = raw.split("\t")
        unknown = result == "?"
        entries = tuple(
            (pair.split(":")[0], int(pair.split(":")[1])) for pair in listing.split(",") if pair
        )
        output = Output(result, int(ident), int(version), int(seen), entries)
        # An unknown create carries the id that it got if it took effect.
        given = Input(op, name, name2, int(payload), int(ident) if op == "create" else 0)
        found.append(Operation(0, given, int(call), output, None if unknown else int(end)))
    return VersionedCatalog(), found


READERS = {
    "etcd-cas-register": read_etcd,
    "kv-string": read_kv,
    "cas-register": lambda text: read_knossos(text, multi=False),
    "multi-register": lambda text: read_knossos(text, multi=True),
    "register": read_crash,
    "catalog": read_catalog,
}

_TOKEN = re.compile(r'[\s,]+|;[^\n]*|("(?:[^"\\]|\\.)*")|([\[\]{}()])|([^\s,\[\]{}()";]+)')


def edn(text: str) -> list[Any]:
    """The part of EDN that the data set uses: collections, keywords, numbers, strings, nil."""
    tokens = _tokens(text)
    found = _value(next(tokens), tokens)
    assert isinstance(found, list)
    return found


def _tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        token = match[1] or match[2] or match[3]
        if token:
            yield token


def _value(token: str, tokens: Iterator[str]) -> Any:
    if token in "[({":
        items = []
        for inner in tokens:
            if inner in "])}":
                break
            items.append(_value(inner, tokens))
        return dict(zip(items[::2], items[1::2], strict=True)) if token == "{" else items
    if token.startswith('"'):
        return token[1:-1]
    if token.startswith(":"):
        return token[1:]
    if token == "nil":
        return None
    try:
        return int(token)
    except ValueError:
        return token
