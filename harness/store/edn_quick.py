"""The quick reader of EDN: rewrites plain text to JSON, in passes that all run in C.

The text is split at strings and keywords; between them lie only separators, brackets, numbers, nil,
true, false and perhaps symbols and tags, which a few replacements turn into JSON's. The pieces are
joined and decoded by msgspec. Maps are read in one of two ways:

* as Clojure prints them, with a comma between pairs and nowhere else: what follows `{` or a comma
  is a key, and a colon put behind it makes the map an object of JSON. Where that guess is wrong, no
  JSON comes of it, which shows at the first such map. A key that stands twice is noticed by
  writing the data again and counting keys;
* without commas, a map becomes `{"": [key, value, ...]}`, and is put together here.

What is not plain enough (comments, discards, characters, nested sets, ratios, mistakes) is no JSON
after this and is refused: the exact reader takes it. Nothing is accepted that EDN would not accept,
or read in another way; the tests hold the two readers against each other.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from harness.store.edn_exact import DEPTH_MAX

__all__ = ["QuickReader", "QuickRefusedError"]

_SPLIT: Final = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*"|:[^\s,;"()\[\]{}\\]+)', re.DOTALL)
# Escapes that EDN and JSON share. One for an ASCII character could hide a quote or a colon.
_ESCAPED: Final = re.compile(rb'"(?:[^"\\]|\\["\\nrtbf]|\\u(?!00[0-7])[0-9a-fA-F]{4})*"')
_BLANKS: Final = bytes.maketrans(b"\t\r\n\f\v", b"     ")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}()"))
_NO_LETTERS: Final = bytes(
    set(range(256)) - {*b"abcdfghijklmnopqrstuvwxyz"} - {*b"ABCDFGHIJKLMNOPQRSTUVWXYZ"}
)
_BEGINS: Final = rb"(?<![^ ,(\[{])"  # behind these, or at the very beginning
_ENDS: Final = rb"(?![^ ,)\]}])"
_LEAF_SET: Final = re.compile(_BEGINS + rb"#\{([^{}\[\]()]*)\}")
_TAG: Final = re.compile(_BEGINS + rb"#[A-Za-z][^ ,()\[\]{}\0]*(?: (?=[^ ,)\]}])|(?=[\[({]))")
_NIL: Final = re.compile(_BEGINS + b"nil" + _ENDS)
_SYMBOL: Final = re.compile(
    _BEGINS + b"(?!(?:null|true|false)" + _ENDS + rb")"
    rb"(?:[A-Za-z_<>*!?$%&=./]|0x)[^ ,()\[\]{}\0\\]*"
)
_NUMBER_KEY: Final = re.compile(rb"([{,])(0|-?[1-9][0-9]{0,17}) ")
_PARENTHESES: Final = bytes.maketrans(b"()", b"[]")
_REMEMBERED_MAX: Final = 10_000
_REMEMBERED_BYTES_MAX: Final = 64  # of one token
# JSON's but not EDN's; comments; characters; strings that are not closed.
_STRANGE: Final = (b":", b"null", b";", b"\\", b'"')
_TIDY: Final = ((b"[ ", b"["), (b" ]", b"]"), (b"{ ", b"{"), (b" }", b"}"))
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class QuickRefusedError(Exception):
    """Not plain enough for this reader."""


class _Quoted(dict[bytes, bytes]):
    """Keywords and strings as JSON; they are remembered, up to a bound."""

    def __missing__(self, token: bytes) -> bytes:
        if not token.startswith(b'"'):
            quoted = b'"' + token[1:] + b'"'
        elif b"\\" in token and not _ESCAPED.fullmatch(token):
            raise QuickRefusedError
        else:
            quoted = token
        if len(token) <= _REMEMBERED_BYTES_MAX and len(self) < _REMEMBERED_MAX:
            self[token] = quoted
        return quoted


class QuickReader:
    """Reads one piece of text after another, and remembers what they have in common."""

    def __init__(self) -> None:
        self._quoted = _Quoted()

    def forms(self, data: bytes) -> list[Any]:
        """The forms of `data`; raises `QuickRefusedError`."""
        if b"\0" in data:
            raise QuickRefusedError
        parts = _SPLIT.split(data)
        rest = _between(b"\0".join(parts[::2]))
        parts[1::2] = map(self._quoted.__getitem__, parts[1::2])
        try:
            return _objects(parts, rest)
        except QuickRefusedError:
            return _pairs(parts, rest)


def _between(rest: bytes) -> bytes:
    """What lies between keywords and strings, which are NUL here, in JSON's words.

    Lists and sets are vectors afterwards; single blanks or commas separate.
    """
    if any(sign in rest for sign in _STRANGE):
        raise QuickRefusedError
    rest = rest.translate(_BLANKS)
    while b"  " in rest:
        rest = rest.replace(b"  ", b" ")
    if b"#" in rest:
        rest = _TAG.sub(b"", _LEAF_SET.sub(rb"[\1]", rest))
    rest = rest.replace(b" ,", b",").replace(b", ", b",")
    brackets = rest.translate(None, _NO_BRACKETS)
    # Each round takes at least one level away, and at most three.
    for _ in range(DEPTH_MAX // 3 - 1):
        fewer = brackets.replace(b"[]", b"").replace(b"{}", b"").replace(b"()", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    if brackets:
        raise QuickRefusedError
    if b"(" in rest:
        rest = rest.translate(_PARENTHESES)
    # Letters other than those of nil, true and false (without the e of 1e9) are of symbols.
    letters = rest.count(b"nil") * 3 + rest.count(b"true") * 3 + rest.count(b"false") * 4
    if len(rest.translate(None, _NO_LETTERS)) == letters:
        rest = rest.replace(b"nil", b"null")
    else:
        rest = _SYMBOL.sub(rb'"\g<0>"', _NIL.sub(b"null", rest))
    for before, after in _TIDY:
        rest = rest.replace(before, after)
    return rest


def _decoded(parts: list[bytes], rest: bytes) -> tuple[bytes, list[Any]]:
    """The JSON text with `rest` around the quoted tokens, and what it holds."""
    parts[::2] = rest.split(b"\0")
    text = b"[" + b"".join(parts).strip(b",") + b"]"
    try:
        found: list[Any] = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise QuickRefusedError from error
    return text, found


def _objects(parts: list[bytes], rest: bytes) -> list[Any]:
    """The forms, if all maps have commas between their pairs, and nothing else has any."""
    rest = rest.replace(b"{\0 ", b"{\0:").replace(b",\0 ", b",\0:")
    rest = _NUMBER_KEY.sub(rb'\1"\2":', rest)
    text, found = _decoded(parts, rest.replace(b" ", b","))
    if _encode(found).count(b'":') != text.count(b'":'):
        raise QuickRefusedError  # a key stands twice
    return found


def _pairs(parts: list[bytes], rest: bytes) -> list[Any]:
    """The forms, if commas mean nothing."""
    rest = rest.replace(b" ", b",").replace(b"{,", b"{").replace(b",}", b"}")
    rest = rest.replace(b"[,", b"[").replace(b",]", b"]")
    rest = rest.replace(b"{", b'{"":[').replace(b"}", b"]}")
    return [_plain(form) for form in _decoded(parts, rest)[1]]


def _plain(value: Any) -> Any:
    """`value` with its maps as maps."""
    if type(value) is list:
        return [_plain(item) if type(item) in {list, dict} else item for item in value]
    if type(value) is not dict:
        return value
    items = value[""]
    keys = items[::2]
    values = [_plain(item) if type(item) in {list, dict} else item for item in items[1::2]]
    try:
        "".join(keys)
        found = dict(zip(keys, values, strict=True))
    except (TypeError, ValueError) as error:  # a key that is no text, or has no value
        raise QuickRefusedError from error
    if len(found) < len(keys):
        raise QuickRefusedError  # a key stands twice
    return found
