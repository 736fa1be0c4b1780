"""The quick reader of EDN: rewrites plain text to JSON, in passes that all run in C.

The text is split at strings and keywords; between them lie only separators, brackets, numbers, nil,
true and false, which a few replacements turn into JSON's. The pieces are joined and decoded by
msgspec. A map becomes `{"": [key, value, ...]}`, so that whatever is closed by the wrong bracket is
no JSON either. What is not plain enough (comments, sets, tags, characters, symbols, ratios,
mistakes) is no JSON after this and is refused: the exact reader takes it. Nothing is accepted that
EDN would not accept, or read in another way; the tests hold the two readers against each other.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from harness.store.edn_exact import DEPTH_MAX

__all__ = ["QuickReader", "QuickRefusedError"]

_SPLIT: Final = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*"|:[^\s,;"()\[\]{}\\]+)', re.DOTALL)
_SEPARATORS: Final = bytes.maketrans(b",\t\r\n\f\v", b"      ")
_REMEMBERED_MAX: Final = 10_000
_REWRITES: Final = (
    (b"[ ", b"["),
    (b" ]", b"]"),
    (b"{ ", b"{"),
    (b" }", b"}"),
    (b"nil", b"null"),
    (b"{", b'{"":['),
    (b"}", b"]}"),
    (b" ", b","),
)
_decode: Final = msgspec.json.Decoder().decode


class QuickRefusedError(Exception):
    """Not plain enough for this reader."""


class _Quoted(dict[bytes, bytes]):
    """Keywords and strings as JSON; keywords are remembered, up to a bound."""

    def __missing__(self, token: bytes) -> bytes:
        if token.startswith(b'"'):
            if b"\\" in token:
                raise QuickRefusedError  # EDN and JSON differ in a few escapes
            return token
        quoted = b'"' + token[1:] + b'"'
        if len(self) < _REMEMBERED_MAX:
            self[token] = quoted
        return quoted


class QuickReader:
    """Reads one piece of text after another, and remembers what they have in common."""

    def __init__(self) -> None:
        self._quoted = _Quoted()
        self._shapes: set[tuple[Any, ...]] = set()

    def forms(self, data: bytes) -> list[Any]:
        """The forms of `data`; raises `QuickRefusedError`."""
        if b"\0" in data:
            raise QuickRefusedError
        parts = _SPLIT.split(data)
        tokens = list(map(self._quoted.__getitem__, parts[1::2]))
        rest = b"\0".join(parts[::2])
        if b"null" in rest:  # a symbol, which must not become nil
            raise QuickRefusedError
        rest = rest.replace(b"#jepsen.history.Op{", b"{").translate(_SEPARATORS)
        while b"  " in rest:
            rest = rest.replace(b"  ", b" ")
        for before, after in _REWRITES:
            rest = rest.replace(before, after)
        parts[::2] = rest.split(b"\0")
        parts[1::2] = tokens
        try:
            found = _decode(b"[" + b"".join(parts).strip(b",") + b"]")
            if rest.count(b"{") == len(found):
                return [self._flat_map(form) for form in found]
            return [self._plain(form, 0) for form in found]
        except (msgspec.DecodeError, RecursionError, TypeError, UnicodeDecodeError) as error:
            raise QuickRefusedError from error

    def _flat_map(self, form: Any) -> dict[str, Any]:
        """A top-level map without maps in it."""
        if not isinstance(form, dict):
            raise QuickRefusedError
        items = form[""]
        keys = tuple(items[::2])
        if keys not in self._shapes or len(items) % 2:
            self._remember(keys, len(items))
        return dict(zip(keys, items[1::2], strict=True))

    def _remember(self, keys: tuple[Any, ...], items: int) -> None:
        """Accept these keys of a map of `items` forms, now and later."""
        texts = all(isinstance(key, str) for key in keys)
        if not texts or len(set(keys)) * 2 != items:
            raise QuickRefusedError
        if len(self._shapes) < _REMEMBERED_MAX:
            self._shapes.add(keys)

    def _plain(self, value: Any, depth: int) -> Any:
        """`value` with its maps as maps."""
        if depth > DEPTH_MAX:
            raise QuickRefusedError
        if isinstance(value, list):
            return [
                self._plain(item, depth + 1) if isinstance(item, (list, dict)) else item
                for item in value
            ]
        if not isinstance(value, dict):
            return value
        items = self._plain(value[""], depth)
        keys = tuple(items[::2])
        self._remember(keys, len(items))
        return dict(zip(keys, items[1::2], strict=True))
