"""The quick reader of EDN, which rewrites plain text to JSON in passes that all run in C.

The text is split at strings (with their tags) and keywords. Between them are only separators,
brackets, numbers, nil, true, false and perhaps symbols and other tags. A few replacements turn
these into JSON. The pieces are joined and decoded by msgspec. Maps are read in one of two ways; the
way that worked for the last text is tried first:

* With commas between pairs and nowhere else, as Clojure prints maps: the token after `{` or a comma
  is a key. A colon inserted after the key makes the map a JSON object.
* With commas that mean nothing: in each round the innermost collections are replaced by marks. A
  map that contains no collections is a row of words, and every second word is a key.

A wrong guess never results in valid JSON: in a JSON object every key has a colon and every pair a
comma, so valid JSON pairs keys and values as EDN does. Duplicate keys are found by encoding the
data again and counting the keys.

Text that is not plain enough (discards, characters, ratios, mistakes) does not become valid JSON
and is refused; the exact reader then reads it. The quick reader accepts no text that is not EDN,
and gives no text another meaning; tests compare the two readers.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from harness.formats.edn.exact_reader import DEPTH_MAX
from harness.vocabularies.edn import text_of

# An unclosed string extends to the end, and is refused later. Otherwise each escaped quote in it
# would start another search for its end.
_SPLIT: Final = re.compile(
    rb'((?:#(?<![^\s,(\[{]#)[A-Za-z][^\0-\x20,;"()\[\]{}]*+[\s,]*+)?+'
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|:[^\s,;"()\[\]{}\\]++)',
    re.DOTALL,
)
# The escapes that EDN and JSON share. An escaped ASCII character could hide a quote or a colon.
_ESCAPED: Final = re.compile(rb'"(?:[^"\\]++|\\["\\nrtbf]|\\u(?!00[0-7])[0-9a-fA-F]{4})*+"')
_BLANKS: Final = bytes.maketrans(b"\t\r\n\f\v", b"     ")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}()"))
_NO_LETTERS: Final = bytes(
    set(range(256)) - {*b"abcdfghijklmnopqrstuvwxyz"} - {*b"ABCDFGHIJKLMNOPQRSTUVWXYZ"}
)
# Each pattern begins with a rare character and then looks back. The character begins a word unless
# the character before it matches `_BEFORE`.
_BEFORE: Final = rb"[^ ,(\[{]"
_ENDS: Final = rb"(?![^ ,)\]}])"
_LEAF_SET: Final = re.compile(rb"#(?<!" + _BEFORE + rb"#)\{([^{}\[\]()]*)\}")
_TAG: Final = re.compile(
    rb"#(?<!" + _BEFORE + rb"#)[A-Za-z][^ ,()\[\]{}\0]*(?: (?=[^ ,)\]}])|(?=[\[({]))"
)
_NIL: Final = re.compile(rb"nil(?<!" + _BEFORE + rb"nil)" + _ENDS)
_SYMBOL: Final = re.compile(
    rb"([A-Za-z_<>*!?$%&=./0](?<!" + _BEFORE + rb".)(?:(?<!0)|(?=x))"
    rb"(?!(?:(?<=n)ull|(?<=t)rue|(?<=f)alse)" + _ENDS + rb")[^ ,()\[\]{}\0\\]*)"
)
_BIG: Final = re.compile(rb"([0-9-](?<!" + _BEFORE + rb".)[0-9]{0,17}+)N" + _ENDS)
_COMMENT: Final = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"|\\.)|;[^\n]*+(?=\n)', re.DOTALL)
_SET_OPENS, _SET_CLOSES = b"\x1e", b"\x1f"
_SET_IN_JSON: Final = (b'{"\\u001e":', b"}")
_OTHER_KEY_IN_JSON: Final = b'"\\u001f'
_NUMBER_KEY: Final = re.compile(rb"(?<=[{,])(0|-?[1-9][0-9]{0,17}) ")
_KEY: Final = re.compile(rb"0|-?[1-9][0-9]{0,17}")
# Vectors that contain no maps, up to three levels. Deeper vectors take another round.
_FLAT: Final = rb"\[[^\[\]{}]*+\]"
_DEEPER: Final = rb"\[(?:[^\[\]{}]++|" + _FLAT + rb")*+\]"
_VECTORS: Final = re.compile(rb"(\[(?:[^\[\]{}]++|" + _DEEPER + rb")*+\])")
_MAPS: Final = re.compile(rb"(#?\{[^\[\]{}]*+\})")
# The marks that replace collections: one per round, for vectors and maps in turn. Marks are not
# blanks, and EDN has no control characters outside of strings.
_MARKS: Final = [bytes([code]) for code in (*range(1, 9), *range(14, 30))]
_NO_MARKS: Final = bytes(set(range(256)) - {mark[0] for mark in _MARKS})
_PARENTHESES: Final = bytes.maketrans(b"()", b"[]")
_REMEMBERED_MAX: Final = 10_000
_REMEMBERED_BYTES_MAX: Final = 64  # longer tokens are not cached
_ROW_BYTES_MAX: Final = 24  # longer texts rarely recur
# Bytes that show that a text is not plain: JSON's own tokens, comments, characters, unclosed
# strings.
_STRANGE: Final = (b":", b"null", b";", b"\\", b'"')
_TIDY: Final = ((b"[ ", b"["), (b" ]", b"]"), (b"{ ", b"{"), (b" }", b"}"))
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class QuickRefusedError(Exception):
    """The text is not plain enough for this reader."""


class _Quoted(dict[bytes, bytes]):
    """Maps keywords and strings, as written in EDN, to JSON. Short ones are cached."""

    def __missing__(self, token: bytes) -> bytes:
        if token.startswith(b":"):
            quoted = b'"' + token + b'"'
        else:
            tag, quote, text = token.partition(b'"')
            if b"\\" in text and not _ESCAPED.fullmatch(quote + text):
                raise QuickRefusedError
            if tag:
                quoted = quote + tag.rstrip(b" ,\t\r\n\f\v") + b" " + text
            elif text.startswith((b":", b"#")):
                if b"\\" in text:
                    raise QuickRefusedError
                quoted = _encode(text_of(text[:-1].decode()))
            else:
                quoted = token
        if len(token) <= _REMEMBERED_BYTES_MAX and len(self) < _REMEMBERED_MAX:
            self[token] = quoted
        return quoted


class QuickReader:
    """Reads one piece of text after another, and caches common strings."""

    def __init__(self) -> None:
        self._quoted = _Quoted()
        self._rows = _Rows()
        self._ways = [_objects, self._rows.forms]

    def forms(self, data: bytes) -> list[Any]:
        """Return the forms of `data`; raises `QuickRefusedError` if they are not plain enough."""
        if b"\0" in data:
            raise QuickRefusedError
        if not data.isascii():
            # Comments and tags do not become JSON, but must be valid UTF-8, too.
            try:
                data.decode()
            except UnicodeDecodeError as error:
                raise QuickRefusedError from error
        parts = _SPLIT.split(_uncommented(data) if b"\n;" in data else data)
        rest = b"\0".join(parts[::2])
        if b";" in rest:
            parts = _SPLIT.split(_uncommented(data))
            rest = b"\0".join(parts[::2])
        rest = _between(rest)
        parts[1::2] = map(self._quoted.__getitem__, parts[1::2])
        try:
            return self._ways[0](parts, rest)
        except QuickRefusedError:
            value = self._ways[1](parts, rest)
        self._ways.reverse()
        return value


def _uncommented(data: bytes) -> bytes:
    """Return the text without comments. A comment may contain an unpaired quote.

    After a backslash outside of strings, the result may be wrong. But the backslash itself stays,
    so the text is refused later.
    """
    return b"".join(filter(None, _COMMENT.split(data)))


def _between(rest: bytes) -> bytes:
    """Return the text between keywords and strings in JSON's syntax, with NULs in their places.

    Lists and sets become vectors. Single blanks or commas separate elements.
    """
    if any(sign in rest for sign in (*_STRANGE, _SET_OPENS, _SET_CLOSES)):
        raise QuickRefusedError
    rest = _single_blanks(rest.translate(_BLANKS))
    if b"#" in rest:
        pieces = _LEAF_SET.split(rest)
        pieces[1::2] = [_SET_OPENS + b"[" + i + b"]" + _SET_CLOSES for i in pieces[1::2]]
        rest = _TAG.sub(b"", b"".join(pieces))
    if b"N" in rest:
        rest = b"".join(_BIG.split(rest))
    rest = rest.replace(b" ,", b",").replace(b", ", b",")
    brackets = rest.translate(None, _NO_BRACKETS)
    # Each round removes at least one level, and at most three.
    for _ in range(DEPTH_MAX // 3 - 1):
        fewer = brackets.replace(b"[]", b"").replace(b"{}", b"").replace(b"()", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    if brackets:
        raise QuickRefusedError
    if b"(" in rest:
        rest = rest.translate(_PARENTHESES)
    # Letters outside of nil, true and false (and of the e in 1e9) belong to symbols.
    letters = rest.count(b"nil") * 3 + rest.count(b"true") * 3 + rest.count(b"false") * 4
    if len(rest.translate(None, _NO_LETTERS)) == letters:
        rest = rest.replace(b"nil", b"null")
    else:
        pieces = _SYMBOL.split(_NIL.sub(b"null", rest))
        pieces[1::2] = [b"\"#'" + symbol + b'"' for symbol in pieces[1::2]]
        rest = b"".join(pieces)
    return _tidied(rest)


def _single_blanks(rest: bytes) -> bytes:
    while b"  " in rest:
        rest = rest.replace(b"  ", b" ")
    return rest


def _tidied(rest: bytes) -> bytes:
    for before, after in _TIDY:
        rest = rest.replace(before, after)
    return rest


def _decoded(parts: list[bytes], rest: bytes) -> list[Any]:
    """Return the values of the JSON text that consists of `rest` and the quoted tokens."""
    parts[::2] = rest.split(b"\0")
    text = b"[" + b"".join(parts).strip(b",") + b"]"
    if _SET_OPENS in text:
        text = text.replace(_SET_OPENS, _SET_IN_JSON[0]).replace(_SET_CLOSES, _SET_IN_JSON[1])
    try:
        values: list[Any] = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise QuickRefusedError from error
    if _encode(values).count(b'":') != text.count(b'":'):
        raise QuickRefusedError  # a map contains a key twice
    return values


def _objects(parts: list[bytes], rest: bytes) -> list[Any]:
    """Return the forms of a text whose only commas are between the pairs of maps."""
    rest = rest.replace(b"{\0 ", b"{\0:").replace(b",\0 ", b",\0:")
    pieces = _NUMBER_KEY.split(rest)
    pieces[1::2] = [_OTHER_KEY_IN_JSON + key + b'":' for key in pieces[1::2]]
    rest = b"".join(pieces)
    return _decoded(parts, rest.replace(b" ", b","))


class _Rows(dict[bytes, bytes]):
    """Maps maps without inner collections, as written in EDN, to JSON. Short ones are cached."""

    def __missing__(self, row: bytes) -> bytes:
        value = _row(row)
        if len(row) <= _ROW_BYTES_MAX and len(self) < _REMEMBERED_MAX:
            self[row] = value
        return value

    def forms(self, parts: list[bytes], rest: bytes) -> list[Any]:
        """Return the forms of a text in which commas mean nothing."""
        if b"," in rest:
            rest = _tidied(_single_blanks(rest.replace(b",", b" ")))
        if rest.translate(None, _NO_MARKS):
            raise QuickRefusedError
        taken: list[list[bytes]] = []
        for number, mark in enumerate(_MARKS):
            if b"{" not in rest:
                break
            pieces = (_MAPS if number % 2 else _VECTORS).split(rest)
            inner = pieces[1::2]
            taken.append(list(map(self.__getitem__, inner)) if number % 2 else inner)
            rest = mark.join(pieces[::2])
        for inner, mark in zip(reversed(taken), reversed(_MARKS[: len(taken)]), strict=True):
            pieces = [b""] * (2 * len(inner) + 1)
            pieces[::2] = rest.split(mark)
            pieces[1::2] = inner
            rest = b"".join(pieces)
        return _decoded(parts, rest.replace(b" ", b","))


def _row(text: bytes) -> bytes:
    """Return the JSON of a map or set whose inner collections are already replaced by marks."""
    if text.startswith(b"#"):
        return _SET_OPENS + b"[" + text[2:-1] + b"]" + _SET_CLOSES
    if text == b"{}":
        return text
    items = text[1:-1].split(b" ")
    keys = items[::2]
    if len(items) % 2:
        raise QuickRefusedError
    if keys.count(b"\0") < len(keys):
        for number, key in enumerate(keys):
            if key != b"\0":
                if not _KEY.fullmatch(key):
                    raise QuickRefusedError
                keys[number] = _OTHER_KEY_IN_JSON + key + b'"'
    return b"{" + b",".join(map(b":".join, zip(keys, items[1::2], strict=True))) + b"}"
