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

import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from results.facts.intervals import Flags, Ints

__all__ = ["PACKED_BYTES_MIN", "Answered", "Packed", "answered", "pack", "with_ids", "with_repeats"]

PACKED_BYTES_MIN: Final = 512
_SAME: Final = "="
_SAME_BYTES_MIN: Final = 24
"""What is shorter is said again."""
_COLUMNS: Final = "|"
_ROWS_MIN: Final = 3
_LIST_BYTES_MIN: Final = 128
"""Of lists that are worth being looked at."""
_BYTES_AT_ONCE: Final = 1 << 19
_MARKS: Final = bytes(code in b"=|#@" for code in range(256))
_HEX: Final = bytes(code in b"0123456789abcdef" for code in range(256))
_OBJECT, _LIST = b"{["
_ID, _DIGEST = 32, 16  # digits
_REFERENCE: Final = re.compile(r'"([#@])([0-9]+)(?:\.([0-9]+))?"')
_ANSWERED: Final = re.compile('"([0-9a-f]{32})(?=")')
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_members_twice: Final = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]]).decode
_objects: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_lists: Final = msgspec.json.Decoder(list[list[msgspec.Raw]]).decode
_encode: Final = msgspec.json.Encoder().encode


class Answered(NamedTuple):
    """Ids that operations of runs were answered, and what stands for each; the first counts."""

    runs: Ints
    ids: Any  # a numpy array of bytes
    references: pa.Array


class Packed(NamedTuple):
    """A note, packed or as it was; and the ids that are new in it, if it is packed."""

    text: bytes
    ids: list[bytes] | None


def answered(
    tables: tuple[Ints, Ints, Sequence[bytes]], rests: tuple[Ints, Ints, Sequence[bytes]]
) -> Answered:
    """Of operations with an `answer_table_id`, and of some with an `answer_rest`.

    Each by run, index and text.
    """
    import numpy as np
    import pyarrow as pa

    # As numpy has texts of fixed length: cut off behind, and without zeros there.
    usual = [len(table) in {_ID, _DIGEST} and b"\0" not in table for table in tables[2]]
    tables = (
        tables[0][np.array(usual, np.bool_)],
        tables[1][np.array(usual, np.bool_)],
        [*itertools.compress(tables[2], usual)],
    )
    runs, indices, texts = rests[0], rests[1], [text + b"\n" for text in rests[2]]
    found = _tokens(b"".join(texts), [len(text) for text in texts])
    of, begin = found.of[found.lengths == _ID], found.ids[found.lengths == _ID]
    number = np.arange(len(of)) - np.searchsorted(of, of)
    references = [b"@%d" % index for index in tables[1].tolist()]
    references += [b"@%d.%d" % at for at in zip(indices[of].tolist(), number.tolist(), strict=True)]
    return Answered(
        np.concatenate([tables[0], runs[of]]),
        np.concatenate([np.array(tables[2], f"S{_ID}"), begin]),
        pa.array(references, pa.binary()),
    )


def pack(notes: Sequence[bytes | memoryview], runs: Ints, known: Answered) -> list[Packed]:
    """Large notes of some runs, packed where that can be undone; those of a run in their order."""
    import numpy as np

    shorts = [_short_of(note) for note in notes]
    texts = [b"" if short is None else short.text for short in shorts]
    joined, lengths = b"".join(texts), [len(text) for text in texts]
    tokens = _tokens(joined, lengths)
    clear = np.array(
        [
            short is not None and short.marks == marks
            for short, marks in zip(shorts, tokens.marks.tolist(), strict=True)
        ],
        np.bool_,
    )
    new, references = _references(tokens, clear, runs, known)
    packed = _replaced(joined, lengths, tokens, references)
    return [
        Packed(text, ids) if is_clear else Packed(bytes(note), None)
        for note, text, ids, is_clear in zip(notes, packed, new, clear.tolist(), strict=True)
    ]


class _Tokens(NamedTuple):
    """Ids and digests between quotes in some texts, in their order."""

    begins: Ints  # in all texts, one behind the other
    lengths: Ints
    of: Ints  # the text of each
    ids: Any  # a numpy array of bytes
    marks: Ints  # of each text: how often a mark stands behind a quote


def _tokens(joined: bytes, lengths: Sequence[int]) -> _Tokens:
    """Some texts at a time: what is made of them stays in the processor's cache."""
    import numpy as np

    whole, parts = memoryview(joined), []
    begin = first = size = 0
    for number, length in enumerate(lengths):
        size += length
        if size >= _BYTES_AT_ONCE or number + 1 == len(lengths):
            found = _tokens_of(whole[begin : begin + size], lengths[first : number + 1])
            parts.append(found._replace(begins=found.begins + begin, of=found.of + first))
            begin, first, size = begin + size, number + 1, 0
    if not parts:
        return _tokens_of(whole, lengths)
    return _Tokens(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _tokens_of(joined: memoryview, lengths: Sequence[int]) -> _Tokens:
    import numpy as np

    codes = np.frombuffer(b"".join([joined, bytes(_ID)]), np.uint8)
    ends = np.cumsum(lengths, dtype=np.int64)
    quotes = np.flatnonzero(codes == ord('"'))
    marked = quotes[np.frombuffer(_MARKS, np.bool_)[codes[quotes + 1]]]
    apart = quotes[1:] - quotes[:-1] - 1
    places = np.flatnonzero((apart == _ID) | (apart == _DIGEST))
    begins, apart = quotes[places] + 1, apart[places]
    is_hex = np.frombuffer(_HEX, np.bool_)
    some = is_hex[codes[begins]] & is_hex[codes[begins + 1]] & is_hex[codes[begins + 2]]
    begins, apart = begins[some], apart[some]
    digits = np.lib.stride_tricks.sliding_window_view(codes, _ID)[begins]
    digits[apart == _DIGEST, _DIGEST:] = ord("0")
    whole: Flags = np.logical_and.reduce(is_hex[digits], axis=1)
    digits[apart == _DIGEST, _DIGEST:] = 0
    begins, apart, digits = begins[whole], apart[whole], digits[whole]
    return _Tokens(
        begins,
        apart,
        np.searchsorted(ends, begins, side="right"),
        np.ascontiguousarray(digits).view(f"S{_ID}").reshape(-1),
        np.bincount(np.searchsorted(ends, marked, side="right"), minlength=len(lengths)),
    )


def _references(
    tokens: _Tokens, clear: Flags, runs: Ints, known: Answered
) -> tuple[list[list[bytes]], pa.Array]:
    """The new ids of each note, and what stands for each token."""
    import numpy as np
    import pyarrow as pa

    own = clear[tokens.of]  # others stay, and name no ids
    whose = np.concatenate([known.runs, runs[tokens.of]])
    codes = pa.array(np.concatenate([known.ids, tokens.ids])).dictionary_encode().indices
    cells = whose * (len(codes) + 1) + codes.to_numpy()
    n_known = len(known.runs)
    cells[n_known:][~own] = -1
    _, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
    at = first[inverse[n_known:]]  # of each token: where its id came first
    is_new = (at == np.arange(n_known, n_known + len(at))) & own
    number = np.cumsum(is_new) - 1
    of_run = runs[tokens.of]
    number -= np.searchsorted(of_run[is_new], of_run)  # from 0 in each run
    which = np.where(at < n_known, at, n_known + number[np.maximum(at - n_known, 0)])
    numbers = [b"#%d" % n for n in range(int(number.max(initial=-1)) + 1)]
    references = pa.concat_arrays([known.references, pa.array(numbers, pa.binary())])
    new: list[list[bytes]] = [[] for _ in clear]
    for of, token in zip(tokens.of[is_new].tolist(), tokens.ids[is_new].tolist(), strict=True):
        new[of].append(token)
    return new, references.take(pa.array(np.where(own, which, 0), mask=~own))


def _replaced(
    joined: bytes, lengths: Sequence[int], tokens: _Tokens, references: pa.Array
) -> list[bytes]:
    """Texts with references for their tokens; one with none for some is of no use."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    # Pieces of all texts behind each other: between tokens, tokens, and nothing where one begins.
    begins = np.concatenate([tokens.begins, starts])
    order = np.argsort(begins, kind="stable")
    offsets = np.empty(2 * len(begins) + 2, np.int32)
    offsets[0], offsets[-1] = 0, len(joined)
    offsets[1:-1:2] = begins[order]
    offsets[2:-1:2] = np.concatenate([tokens.begins + tokens.lengths, starts])[order]
    pieces = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    )
    instead = pa.concat_arrays(
        [references.fill_null(b""), pa.array([b""] * len(starts), pa.binary())]
    )
    is_token = np.zeros(len(pieces), np.bool_)
    is_token[1::2] = True
    made = pc.replace_with_mask(pieces, pa.array(is_token), instead.take(pa.array(order)))
    ends = np.frombuffer(made.buffers()[1], np.int32)[: len(made) + 1]
    cuts = ends[1:-1:2][order >= len(tokens.begins)].tolist()
    content = memoryview(made.buffers()[2])
    return [bytes(content[begin:end]) for begin, end in itertools.pairwise(cuts)]


def _short_of(text: bytes | memoryview) -> _Short | None:
    """`None` for what is never packed."""
    if text[:1] != b"{":
        return None
    try:
        short = _Short(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # no JSON, which is for others to say
    return None if b"\\" in short.text and b"\\u" in short.text else short


class _Said(NamedTuple):
    """What the nodes of a group said last: members by name, and members of these."""

    own: dict[str, Any]
    inner: dict[str, dict[str, Any]]


class _Short:
    """A note without what nodes say again; `marks` counts how often that or a list stands in it."""

    def __init__(self, text: bytes | memoryview) -> None:
        self.marks = 0
        note: dict[str, Any] = _members(text)
        for name, group in note.items():
            if memoryview(group)[0] == _OBJECT:
                note[name] = nodes = _nodes(group)
                said = _Said({}, {})
                for node, members in nodes.items():
                    if type(members) is dict:
                        nodes[node] = self._unlike(members, said.own, said)
        self.text = _encode(note)

    def _unlike(
        self, members: dict[str, Any], said: dict[str, msgspec.Raw], below: _Said | None
    ) -> dict[str, Any]:
        """Members without what was `said` before; what they say themselves is `said` then.

        Those that have members are looked into if there is a `below`.
        """
        marks = 0
        for name, own in members.items():
            length = len(own)
            if length >= _SAME_BYTES_MIN and said.get(name) == own:
                members[name] = _SAME
                marks += 1
                continue
            said[name] = own
            if length >= _LIST_BYTES_MIN and memoryview(own)[0] == _LIST:
                columns = _columns(own)
                if columns is not None:
                    members[name] = {_COLUMNS: columns}
                    marks += 1
            elif below is not None and length > len("{}") and memoryview(own)[0] == _OBJECT:
                inner = below.inner.setdefault(name, {})
                members[name] = self._unlike(_members(own), inner, None)
        self.marks += marks
        return members


def _nodes(group: msgspec.Raw) -> dict[str, Any]:
    """Nodes with their members, but for a node that has none; large ones are read only once."""
    try:
        return _members_twice(group)
    except msgspec.ValidationError:
        return {
            node: _members(content) if memoryview(content)[0] == _OBJECT else content
            for node, content in _members(group).items()
        }


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
    if [*map(list, rows)].count(names) < len(rows):
        return None
    return dict(zip(names, zip(*map(dict.values, rows), strict=True), strict=True))


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
            said = _Said({}, {})
            for members in group.values():
                if isinstance(members, dict):
                    _again(members, said.own, said)


def _again(members: dict[str, Any], said: dict[str, Any], below: _Said | None) -> None:
    for name, own in members.items():
        if own == _SAME:
            members[name] = said[name]
        elif isinstance(own, dict) and len(own) == 1 and _COLUMNS in own:
            members[name] = said[name] = _rows(own[_COLUMNS])
        else:
            said[name] = own
            if below is not None and isinstance(own, dict):
                _again(own, below.inner.setdefault(name, {}), None)


def _rows(columns: dict[str, Any] | list[Any]) -> list[Any]:
    if isinstance(columns, list):
        return [[*row] for row in zip(*columns, strict=True)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
