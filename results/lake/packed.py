"""Large notes, such as the snapshot of all nodes' state at a run's end, with nothing said twice.

A snapshot of a hundred thousand bytes is what five masters say of one catalog, row after row with
the same names, and ids and digests that nothing predicts, again and again. So `value_rest` of a
large note is JSON in which

* `"="` stands for what the node before says under the same name: in `{"masters": {"m1": {"tables":
  X}, "m2": {"tables": "="}}}` both have X. That is so for the members of nodes and for the members
  of these, and the node before is the last that does not say "=" there itself;
* `{"|": {"id": [1, 2], "name": ["a", "b"]}}` in these places stands for the list of objects
  `[{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]`, and `{"|": [[1, 2], [3, 4]]}` for the list of
  lists `[[1, 3], [2, 4]]`;
* `"#N"` stands for an id or digest (of 16 or 32 hexadecimal digits), also as the name of a member:
  number N, from 0, of those in the `value_ids` of the run's events, in the order of their `index`;
* `"@N"` stands for the `answer_table_id` of the run's operation with the index N, and `"@N.K"` for
  number K, from 0, of the ids of 32 digits in its `answer_rest`.

`value_ids` has the ids that no packed note before had, and is null where a note is not packed. One
that has a text like these four, or characters that JSON escapes by number, never is. So what comes
back always equals what went in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

__all__ = ["PACKED_BYTES_MIN", "Packer", "with_ids", "with_repeats"]

PACKED_BYTES_MIN: Final = 512
_SAME: Final = "="
_SAME_BYTES_MIN: Final = 24
"""What is shorter is said again."""
_COLUMNS: Final = "|"
_ROWS_MIN: Final = 3
_MARKS: Final = bytes(code in b"=|#@" for code in range(256))
_OBJECT, _LIST = b"{["
_ID_LENGTHS: Final = (16, 32)
_REFERENCE: Final = re.compile(r'"([#@])([0-9]+)(?:\.([0-9]+))?"')
_ANSWERED: Final = re.compile('"([0-9a-f]{32})"')
_is_id: Final = re.compile(rb"[0-9a-f]+").fullmatch
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_objects: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_lists: Final = msgspec.json.Decoder(list[list[msgspec.Raw]]).decode
_encode: Final = msgspec.json.Encoder().encode

Path = tuple[str, ...]


class Packer:
    """Packs the large notes of one run, which it is given in their order."""

    def __init__(self) -> None:
        self._said: dict[bytes, bytes] = {}
        self._ids = 0

    def answered_table(self, index: int, table: bytes) -> None:
        """An operation has this `answer_table_id`."""
        self._said.setdefault(table, b"@%d" % index)

    def answered_rest(self, index: int, rest: str) -> None:
        """An operation has this `answer_rest`."""
        for number, found in enumerate(_ANSWERED.findall(rest)):
            self._said.setdefault(found.encode(), b"@%d.%d" % (index, number))

    def pack(self, text: bytes) -> tuple[bytes, list[bytes]] | None:
        """A note and the ids that are new in it; `None` where it stays as it is."""
        if text[:1] != b"{":
            return None
        try:
            short = _Short(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # no JSON, which is for others to say
        return self._without_ids(short.text, short.marks)

    def _without_ids(self, text: bytes, marks: int) -> tuple[bytes, list[bytes]] | None:
        """`marks` are those that are ours.

        What stands between two quotes and is no id, say `": 12, "`, stays.
        """
        import numpy as np

        codes = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(codes == ord('"'))
        marked = np.frombuffer(_MARKS, np.uint8)[codes[quotes[:-1] + 1]]
        if np.count_nonzero(marked) != marks or (b"\\" in text and b"\\u" in text):
            return None
        lengths = quotes[1:] - quotes[:-1] - 1
        places = np.flatnonzero((lengths == _ID_LENGTHS[0]) | (lengths == _ID_LENGTHS[1]))
        said, new, parts, last = self._said, [], [], 0
        for begin, length in zip(
            (quotes[places] + 1).tolist(), lengths[places].tolist(), strict=True
        ):
            token = text[begin : begin + length]
            reference = said.get(token)
            if reference is None:
                if not _is_id(token):
                    continue
                reference = said[token] = b"#%d" % self._ids
                self._ids += 1
                new.append(token)
            parts += (text[last:begin], reference)
            last = begin + length
        parts.append(text[last:])
        return b"".join(parts), new


class _Short:
    """A note without what nodes say again; `marks` counts how often that or a list stands in it."""

    def __init__(self, text: bytes) -> None:
        self.marks = 0
        note: dict[str, Any] = _members(text)
        for name, group in note.items():
            if memoryview(group)[0] == _OBJECT:
                note[name] = nodes = _members(group)
                said: dict[Path, msgspec.Raw] = {}
                for node, content in nodes.items():
                    if memoryview(content)[0] == _OBJECT:
                        nodes[node] = self._unlike(_members(content), said, ())
        self.text = _encode(note)

    def _unlike(
        self, members: dict[str, Any], said: dict[Path, msgspec.Raw], above: Path
    ) -> dict[str, Any]:
        """Members without what was `said` before; what they say themselves is `said` then."""
        for name, own in members.items():
            at = (*above, name)
            if len(own) >= _SAME_BYTES_MIN and said.get(at) == own:
                members[name] = _SAME
                self.marks += 1
                continue
            said[at] = own
            begin = memoryview(own)[0]
            if begin == _LIST and len(own) >= _SAME_BYTES_MIN:
                columns = _columns(own)
                if columns is not None:
                    members[name] = {_COLUMNS: columns}
                    self.marks += 1
            elif begin == _OBJECT and not above:
                members[name] = self._unlike(_members(own), said, at)
        return members


def _columns(raw: msgspec.Raw) -> dict[str, Any] | list[Any] | None:
    """A list of objects, or of lists, by column; `None` where they are not alike."""
    inner = memoryview(raw)[1]
    if inner not in (_OBJECT, _LIST):
        return None
    try:
        rows: list[Any] = (_objects if inner == _OBJECT else _lists)(raw)
    except msgspec.ValidationError:
        return None
    if len(rows) < _ROWS_MIN or not rows[0] or len({*map(len, rows)}) > 1:
        return None
    if inner == _LIST:
        return [*zip(*rows, strict=True)]
    names = [*rows[0]]
    if any([*row] != names for row in rows):
        return None
    values = zip(*(row.values() for row in rows), strict=True)
    return dict(zip(names, values, strict=True))


def with_ids(
    text: str, ids: Sequence[str], answered: Callable[[int], tuple[str | None, str | None]]
) -> str:
    """A packed note with its ids; `answered`: `answer_table_id` and `answer_rest` of an operation.

    Raises `LookupError` for what is not there.
    """

    def whole(found: re.Match[str]) -> str:
        kind, number, place = found.groups()
        if kind == "#":
            return f'"{ids[int(number)]}"'
        table, rest = answered(int(number))
        return f'"{table if place is None else _ANSWERED.findall(rest or "")[int(place)]}"'

    return _REFERENCE.sub(whole, text)


def with_repeats(note: dict[str, Any]) -> None:
    """Say again what nodes said; equal parts are one object then. Raises `LookupError`."""
    for group in note.values():
        if isinstance(group, dict):
            said: dict[Path, Any] = {}
            for members in group.values():
                if isinstance(members, dict):
                    _again(members, said, ())


def _again(members: dict[str, Any], said: dict[Path, Any], above: Path) -> None:
    for name, own in members.items():
        at = (*above, name)
        if own == _SAME:
            members[name] = said[at]
        elif isinstance(own, dict) and len(own) == 1 and _COLUMNS in own:
            members[name] = said[at] = _rows(own[_COLUMNS])
        else:
            said[at] = own
            if not above and isinstance(own, dict):
                _again(own, said, at)


def _rows(columns: dict[str, Any] | list[Any]) -> list[Any]:
    if isinstance(columns, list):
        return [[*row] for row in zip(*columns, strict=True)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
