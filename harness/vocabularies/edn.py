r"""EDN's values as plain JSON; values that differ in EDN stay different, in value or in type.

| EDN                       | in an op's value                                           |
|---------------------------|------------------------------------------------------------|
| `"x"`                     | `"x"`                                                      |
| `:x`                      | `":x"`                                                     |
| `1`, `1N`; `1.0`          | `1`; `1.0`, a float, which a check keeps apart from 1      |
| `0.10M`, `0.1M`           | `"#0.1M"`                                                  |
| `1/2`, `2/4`              | `"#1/2"` (`4/2` is 2)                                      |
| `\x`, `sym`               | `"#\\x"`, `"#'sym"`                                        |
| `#inst "t"`               | `"#inst t"`; any other tag is dropped: a record is its map |
| `":x"`, `"#1/2"` (text)   | `'#":x'`, `'#"#1/2'`                                       |
| `#{2 1}`                  | `{"#{}": [1, 2]}`, in canonical order                      |
| `{:x 1}`, `{"x" 1}`       | `{"x": 1}`, `{'#"x': 1}`                                   |
| `{1 2, [3] 4}`            | `{"1": 2, "[3]": 4}`                                       |
| `[[:append :x 1]]`        | `[["append", ":x", 1]]`: micro-operations lose the colon   |

A list and a vector are equal, as in Clojure. `:type`, `:f` and names of processes are plain
strings, and so are all values in ops that are not a client's (`loose`).
"""

from __future__ import annotations

import decimal
import functools
import math
import re
from typing import Any, Final

import msgspec

from harness.errors import HistoryError, shown

SET: Final = "#{}"
"""The only key of a JSON object that represents a set."""
SET_MARK: Final = "\x1e"
"""The placeholder for `SET` in values from a file, before `settled` converts them."""
OTHER_KEY: Final = "\x1f"
"""The prefix of a map key that is not a string. The key itself, such as a number, follows as JSON.
It is used only in values from a file, before `settled` converts them."""
STRING_KEY: Final = "\x1d"
"""The prefix of a string key that itself begins with `SET_MARK`, `OTHER_KEY` or `STRING_KEY`. It is
used only in values from a file, before `settled` converts them."""
_VERBS: Final = {
    f":{name}": name
    for name in ("append", "r", "w", "read", "write", "rp", "insert", "delete", "update")
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORD: Final = r'[^\x00-\x20,;"()\[\]{}]'
_KEYWORD: Final = re.compile(f":{_WORD}+")
_TAGGED: Final = re.compile(f"#([A-Za-z]{_WORD}*) (.*)", re.DOTALL)
_SYMBOL: Final = re.compile(rf"#'(?![:#^\\]|(?:nil|true|false)\Z){_WORD}+")
_CHARACTER: Final = re.compile(r"#\\.", re.DOTALL)
_DIGITS: Final = re.compile(r"#[+-]?[0-9][0-9.eE+-]*(?:M|/[0-9]+)")
_UNENDING: Final = ("##Inf", "##-Inf", "##NaN")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+N?")
_OCTAL: Final = re.compile(r"([+-]?)0([0-9]+)N?")
_FLOAT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?M?")
_RATIO: Final = re.compile(r"([+-]?[0-9]+)/([0-9]+)")
_PLAIN_EXPONENT_MAX: Final = 40
_COLLECTIONS: Final = frozenset({list, dict})
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def members(value: Any) -> list[Any] | None:
    """Return the elements of a list or set; `None` if `value` is neither."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, dict) and len(value) == 1:
        found = value.get(SET)
        return found if isinstance(found, list) else None
    return None


def number_of(token: str) -> Any:
    """Return the number that `token` denotes in EDN, or `None` if it denotes no number.

    Raises `ValueError` if the number is out of range. As in Clojure, a leading zero means octal
    digits.
    """
    if (octal := _OCTAL.fullmatch(token)) is not None:
        if not octal[2].strip("01234567"):
            return int(octal[1] + octal[2], 8)
        raise ValueError("begins with a zero, so its digits are octal")
    if _INTEGER.fullmatch(token):
        return int(token.rstrip("N"))
    if (ratio := _RATIO.fullmatch(token)) is not None:
        above, below = int(ratio[1]), int(ratio[2])
        if not below:
            raise ValueError("divides by zero")
        common = math.gcd(above, below)
        above, below = above // common, below // common
        return above if below == 1 else f"#{above}/{below}"
    if not _FLOAT.fullmatch(token):
        return None
    if token.endswith("M"):
        return f"#{_decimal(token[:-1])}M"
    number = float(token)
    if math.isinf(number):
        raise ValueError("is out of range")
    return number


def _decimal(digits: str) -> str:
    try:
        sign, figures, exponent = decimal.Decimal(digits).as_tuple()
    except decimal.InvalidOperation:
        raise ValueError("is out of range") from None
    assert isinstance(exponent, int), "the digits are a finite number"
    text = "".join(map(str, figures)).lstrip("0")
    if not text:
        return "0"
    whole = text.rstrip("0")
    exponent += len(text) - len(whole)
    minus = "-" if sign else ""
    if 0 <= exponent <= _PLAIN_EXPONENT_MAX:
        return f"{minus}{whole}{'0' * exponent}"
    if -_PLAIN_EXPONENT_MAX <= exponent < 0:
        padded = whole.rjust(1 - exponent, "0")
        return f"{minus}{padded[:exponent]}.{padded[exponent:]}"
    return f"{minus}{whole}E{exponent}"


@functools.lru_cache(maxsize=10_000)
def is_edn_atom(text: str) -> bool:
    """Whether a string in a value encodes another EDN form, such as a keyword or a decimal."""
    if text.startswith(":"):
        return _KEYWORD.fullmatch(text) is not None
    if not text.startswith("#"):
        return False
    if text.startswith('#"'):
        return is_edn_atom(text[2:])
    try:
        if _DIGITS.fullmatch(text):
            return bool(number_of(text[1:]) == text)
        if _SYMBOL.fullmatch(text):
            return number_of(text[2:]) is None
    except ValueError:
        return False
    return text in _UNENDING or any(p.fullmatch(text) for p in (_TAGGED, _CHARACTER))


def text_of(string: str) -> str:
    """Return a string of EDN in the form that it has in an op's value."""
    return f'#"{string}' if string[:1] in {":", "#"} and is_edn_atom(string) else string


def _is_ambiguous(key: str) -> bool:
    """Whether a string key would be mistaken for a key of another type in EDN."""
    if _IDENTIFIER.fullmatch(key) or key == SET or is_edn_atom(key):
        return True
    if key.startswith('#"'):
        return _is_ambiguous(key[2:])
    return _json_key(key) is not None


def _json_key(key: str) -> tuple[Any] | None:
    """Return the value whose JSON is `key`, as a tuple of one.

    `None` if `key` is not JSON, or is the JSON of a string.
    """
    try:
        value = msgspec.json.decode(key)
        return None if isinstance(value, str) or _encode(value).decode() != key else (value,)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


@functools.lru_cache(maxsize=10_000)
def _key(raw: str) -> str:
    """Return the key `raw` of an EDN map in the form that it has in an op's value."""
    if raw.startswith((OTHER_KEY, STRING_KEY)):
        return raw[1:]
    if raw.startswith(":") and _KEYWORD.fullmatch(raw):
        return raw[1:] if _IDENTIFIER.fullmatch(raw, 1) else raw
    if raw.startswith("#") and is_edn_atom(raw):
        if not raw.startswith('#"'):
            return raw
        raw = raw[2:]
    return f'#"{raw}' if _is_ambiguous(raw) else raw


def settled(value: Any) -> Any:
    """Convert a client's value, as read from a file, to the form that it has in an op.

    Lists are changed in place. Raises `HistoryError` for a set with a duplicate element.
    """
    if type(value) is list:
        if _COLLECTIONS.isdisjoint(map(type, value)):
            return value
        for place, item in enumerate(value):
            kind = type(item)
            if kind is list:
                if item and type(item[0]) is str and item[0] in _VERBS:
                    item[0] = _VERBS[item[0]]
                if not _COLLECTIONS.isdisjoint(map(type, item)):
                    settled(item)
            elif kind is dict:
                value[place] = settled(item)
        return value
    if type(value) is not dict:
        return value
    if SET_MARK in value:
        return {SET: _ordered(settled(value[SET_MARK]))}
    return {_key(key): settled(item) for key, item in value.items()}


def without_colons(value: Any) -> Any:
    """Remove the colons from names of micro-operations in a value that was read from JSON."""
    if type(value) is list:
        for item in value:
            if type(item) is list and item and type(item[0]) is str and item[0] in _VERBS:
                item[0] = _VERBS[item[0]]
    return value


def _ordered(items: list[Any]) -> list[Any]:
    """Return the elements of a set in canonical order. The order is the same for equal sets."""
    if set(map(type, items)) <= {int}:
        kept = sorted(set(items))
        if len(kept) == len(items):
            return kept
    by_text = {_encode(item): item for item in items}
    if len(by_text) < len(items):
        texts = [_encode(item) for item in items]
        twice = next(item for item in items if texts.count(_encode(item)) > 1)
        raise HistoryError(f"a set contains the element {shown(twice)} twice")
    return [by_text[text] for text in sorted(by_text)]


def loose(value: Any) -> Any:
    """Convert a value from a file to plain JSON without EDN's forms, for display only."""
    if isinstance(value, str):
        return _bare(value)
    if isinstance(value, list):
        return [loose(item) for item in value]
    if isinstance(value, dict):
        if SET_MARK in value:
            return loose(value[SET_MARK])
        return {
            key[1:] if key.startswith((OTHER_KEY, STRING_KEY)) else _bare(key): loose(item)
            for key, item in value.items()
        }
    return value


@functools.lru_cache(maxsize=10_000)
def _bare(text: str) -> str:
    if text[:1] not in {":", "#"} or not is_edn_atom(text):
        return text
    if (tagged := _TAGGED.fullmatch(text)) is not None:
        return tagged[2]
    return text[1:] if text[0] == ":" or text[1] in "0123456789+-" else text[2:]


# --- writing ---------------------------------------------------------------------------------


def edn_of(value: Any, *, plain: bool = False) -> str:
    """Return a value as EDN text. `plain` means that strings in the value encode no other EDN
    forms.

    Raises `HistoryError` for values that neither JSON nor EDN can express.
    """
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value) if plain or not is_edn_atom(value) else _atom(value)
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(edn_of(item, plain=plain) for item in value)}]"
    if isinstance(value, dict):
        if not plain and (elements := members(value)) is not None:
            return f"#{{{' '.join(edn_of(item) for item in elements)}}}"
        pairs = [f"{_key_in_edn(key, plain)} {edn_of(value[key], plain=plain)}" for key in value]
        return f"{{{', '.join(pairs)}}}"
    raise HistoryError(
        f"a value of type {type(value).__name__} cannot be written as EDN: {value!r}"
    )


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _atom(text: str) -> str:
    """Return the EDN form of a string for which `is_edn_atom` is true."""
    if text.startswith('#"'):
        return _quoted(text[2:])
    if (tagged := _TAGGED.fullmatch(text)) is not None:
        return f"#{tagged[1]} {_quoted(tagged[2])}"
    if text.startswith("#\\"):
        char = text[2]
        return f"\\{char}" if char.isalnum() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
    return text if text[0] == ":" or text in _UNENDING else text[1:].removeprefix("'")


def _key_in_edn(key: object, plain: bool) -> str:
    text = str(key)
    if _IDENTIFIER.fullmatch(text):
        return f":{text}"
    if plain:
        return _quoted(text)
    if text.startswith('#"'):
        return _quoted(text[2:] if _is_ambiguous(text[2:]) else text)
    if is_edn_atom(text):
        return _atom(text)
    other = _json_key(text)
    return _quoted(text) if other is None else edn_of(other[0])
