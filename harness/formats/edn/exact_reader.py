"""The exact reader of EDN: a recursive-descent parser that reports positions.

The grammar is that of https://github.com/edn-format/edn: nil, booleans, numbers, characters,
strings, symbols, keywords, lists, vectors, maps, sets, tagged elements, comments and discards.
Results have the forms of `harness.vocabularies.edn`, before its function `settled` runs.

The text may be the beginning of a longer text (`final=False`). A form that touches the end of the
text may then continue, so it is reported as unfinished.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from harness.vocabularies.edn import OTHER_KEY, SET_MARK, STRING_KEY, number_of, settled, text_of

DEPTH_MAX: Final = 200
# Only ASCII characters are blanks. For both readers, any other white space is part of a symbol.
_SKIP: Final = re.compile(r"(?:[\s,]+|;[^\n]*)+", re.ASCII)
_TOKEN: Final = re.compile(r"[^\s,;\"()\[\]{}]+", re.ASCII)
_STRING: Final = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_TAG_OF_TEXT: Final = re.compile(r'[A-Za-z][^\x00-\x20,;"()\[\]{}]*')
_DIGITS_MAX: Final = 4000  # longer numbers take quadratic time, and Python refuses them
_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "b": "\b", "f": "\f"}
CLOSERS: Final = {"(": ")", "[": "]", "{": "}"}
_CHARACTERS: Final = {
    "newline": "\n",
    "space": " ",
    "tab": "\t",
    "return": "\r",
    "formfeed": "\f",
    "backspace": "\b",
}
_CODE_POINT: Final = re.compile(r"u[0-9a-fA-F]{4}")
_UNENDING: Final = ("##Inf", "##-Inf", "##NaN")
_WORDS: Final = {"nil": None, "true": True, "false": False}
_DISCARD: Final = object()


class StoppedError(Exception):
    """The reader cannot continue at this position."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(what)
        self.what = what
        self.position = position


class UnfinishedError(StoppedError):
    """The text ends inside a form. The form may continue in the next block."""


class MistakeError(StoppedError):
    """The text is not valid EDN at this position."""


class ExactReader:
    """A recursive-descent reader over one text."""

    def __init__(self, text: str, *, final: bool) -> None:
        self.text = text
        self.final = final
        self.position = 0

    def next_form(self, closer: str = "") -> tuple[int, Any] | None:
        """Return the next form and its position; `None` at the end or at `closer`.

        After a return or an `UnfinishedError`, `position` is the place to continue.
        """
        while True:
            self.skip()
            start = self.position
            if start >= len(self.text) or (closer and self.text[start] == closer):
                return None
            try:
                form = self._form(0)
            except UnfinishedError:
                self.position = start
                raise
            if form is not _DISCARD:
                return start, form

    def skip(self) -> None:
        match = _SKIP.match(self.text, self.position)
        if match is None:
            return
        end = match.end()
        if end == len(self.text) and not self.final:
            # The comment may continue in the next block, so read it there again from its beginning.
            line = self.text.rfind("\n", self.position, end) + 1
            comment = self.text.find(";", max(line, self.position), end)
            if comment >= 0:
                self.position = comment
                raise UnfinishedError("the file ends", comment)
        self.position = end

    def _form(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise MistakeError(f"nested deeper than {DEPTH_MAX} levels", self.position)
        char = self.text[self.position]
        if char == '"':
            return text_of(self._string())
        if char in CLOSERS:
            start = self.position
            self.position += 1
            items = self._items(CLOSERS[char], depth, start)
            return self._map(items, start) if char == "{" else items
        if char == "#":
            return self._dispatch(depth)
        if char in ")]}":
            raise MistakeError(f"{char!r} closes nothing", self.position)
        return self._atom()

    def _items(self, closer: str, depth: int, start: int) -> list[Any]:
        items: list[Any] = []
        while True:
            self.skip()
            if self.position >= len(self.text):
                raise UnfinishedError(f"the file ends before this is closed by {closer!r}", start)
            char = self.text[self.position]
            if char == closer:
                self.position += 1
                return items
            if char in ")]}":
                raise MistakeError(f"{char!r} where {closer!r} should close", self.position)
            form = self._form(depth + 1)
            if form is not _DISCARD:
                items.append(form)

    def _map(self, items: list[Any], start: int) -> dict[str, Any]:
        if len(items) % 2:
            raise MistakeError("a map with a key that has no value", start)
        keys = [_key(item) for item in items[::2]]
        entries = dict(zip(keys, items[1::2], strict=True))
        if len(entries) < len(keys):
            seen: set[str] = set()
            for key in keys:
                if key in seen:
                    name = _short(key.removeprefix(OTHER_KEY))
                    raise MistakeError(f"a map with the key {name!r} twice", start)
                seen.add(key)
        return entries

    def _dispatch(self, depth: int) -> Any:
        start = self.position
        following = self.text[start + 1 : start + 2]
        if not following:
            stop = MistakeError if self.final else UnfinishedError
            raise stop("'#' without a tag", start)
        if following == "{":
            self.position += 2
            return {SET_MARK: self._items("}", depth, start)}
        if following == "#":  # ##Inf, ##-Inf and ##NaN, which Clojure adds to EDN
            token = _TOKEN.match(self.text, start)
            assert token is not None, "it begins with '#'"
            if token.end() == len(self.text) and not self.final:
                raise UnfinishedError("the file ends", start)
            if token[0] not in _UNENDING:
                raise MistakeError(f"{_short(token[0])!r} is not a number of EDN", start)
            self.position = token.end()
            return token[0]
        self.position += 2 if following == "_" else 1
        tag = ""
        if following != "_":
            token = _TOKEN.match(self.text, self.position)
            if token is None:
                raise MistakeError("'#' without a tag", start)
            self.position = token.end()
            tag = token[0]
        while True:
            self.skip()
            if self.position >= len(self.text):
                raise UnfinishedError("the file ends before the tagged element", start)
            if self.text[self.position] == '"' and _TAG_OF_TEXT.fullmatch(tag):
                return f"#{tag} {self._string()}"
            form = self._form(depth + 1)
            if form is not _DISCARD:
                return _DISCARD if following == "_" else form

    def _string(self) -> str:
        match = _STRING.match(self.text, self.position)
        if match is None:
            raise UnfinishedError("a string that is not closed", self.position)
        start = self.position
        self.position = match.end()
        if "\\" not in match[1]:
            return match[1]

        def unescape(escape: re.Match[str]) -> str:
            code = escape[1]
            if code[0] == "u" and len(code) == 5:
                return chr(int(code[1:], 16))
            if code not in _ESCAPES:
                raise MistakeError(f"the escape \\{code} is unknown in EDN", start)
            return _ESCAPES[code]

        text = _ESCAPE.sub(unescape, match[1])
        try:
            # Java writes a character beyond 16 bits as two surrogates.
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise MistakeError("a string with half a surrogate pair", start) from None

    def _atom(self) -> Any:
        start = self.position
        if self.text[start] == "\\" and start + 1 < len(self.text):
            # The character may be a delimiter, such as \( or \;.
            token = _TOKEN.match(self.text, start + 2)
            self.position = start + 2 if token is None else token.end()
        else:
            match = _TOKEN.match(self.text, start)
            assert match is not None, "`_form` handles every other first character"
            self.position = match.end()
        if self.position == len(self.text) and not self.final:
            raise UnfinishedError("the file ends", start)
        token_text = self.text[start : self.position]
        control = _CONTROL.search(token_text)
        if control is not None:
            raise MistakeError(
                f"the control character U+{ord(control[0]):04X}", start + control.start()
            )
        if token_text in _WORDS:
            return _WORDS[token_text]
        if token_text.startswith(":"):
            if len(token_text) == 1:
                raise MistakeError("a keyword without a name", start)
            return token_text
        if token_text.startswith("\\"):
            return f"#\\{_character(token_text[1:], start)}"
        if token_text[0] == "^":  # Clojure's metadata of the next form
            raise MistakeError("metadata ('^') is not EDN", start)
        if token_text[0] in "+-0123456789":
            return _number(token_text, start)
        return f"#'{token_text}"


def _character(name: str, start: int) -> str:
    if not _CODE_POINT.fullmatch(name):
        return _CHARACTERS.get(name, name)
    code = int(name[1:], 16)
    if 0xD800 <= code < 0xE000:
        raise MistakeError("a character that is half a surrogate pair", start)
    return chr(code)


def _number(token: str, start: int) -> Any:
    if len(token) > _DIGITS_MAX:
        raise MistakeError(f"a number of more than {_DIGITS_MAX} digits", start)
    try:
        number = number_of(token)
    except ValueError as error:
        raise MistakeError(f"the number {_short(token)} {error}", start) from error
    if number is not None:
        return number
    if token.lstrip("+-")[:1].isdecimal() and not token.startswith("0x"):
        raise MistakeError(f"{_short(token)} is neither a number nor a symbol of EDN", start)
    return f"#'{token}"  # a symbol such as + or ->, or the address in an #object


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _key(item: Any) -> str:
    """Convert a map's key to a string, because keys of JSON objects must be strings."""
    if not isinstance(item, str):
        return OTHER_KEY + msgspec.json.encode(settled(item), order="sorted").decode()
    return STRING_KEY + item if item[:1] in {SET_MARK, OTHER_KEY, STRING_KEY} else item
