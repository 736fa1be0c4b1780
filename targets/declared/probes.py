"""Conditions on an answer, for the keys `leads` and `term` of the table `[leader]`.

There are three kinds of conditions: a regular expression between slashes, which must match
somewhere in the answer's text; a JSON path; and a comparison of a path with another path or with a
JSON value. Examples are `/role:master/`, `is_leader`, `leader == header.member_id` and `state ==
"primary"`. An answer without the path is an error. It never means "does not lead".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from harness.errors import UsageError, shown
from targets.declared.protocols.paths import value_at

__all__ = ["condition", "number"]

_PATH: Final = re.compile(r"[A-Za-z_][\w-]*(?:\.(?:[A-Za-z_][\w-]*|\d+))*")
_RULE: Final = (
    "write a regular expression in slashes (/role:master/), a path of the answer's JSON "
    '(is_leader), or a comparison (leader == header.member_id, state == "primary")'
)


def condition(text: str) -> Callable[[Any], bool]:
    """Parse a condition into a function of an answer. Raises `UsageError`.

    The function raises `ValueError` for an answer that lacks the path.
    """
    if len(text) > 2 and text[0] == text[-1] == "/":
        pattern = _pattern(text)
        return lambda answer: pattern.search(_as_text(answer)) is not None
    left, equals, right = (part.strip() for part in text.partition("=="))
    if not _PATH.fullmatch(left):
        raise UsageError(f"is {text!r}; {_RULE}")
    if not equals:
        return lambda answer: _truth(value_at(answer, left), left)
    if _PATH.fullmatch(right) and right not in {"true", "false", "null"}:
        return lambda answer: bool(value_at(answer, left) == value_at(answer, right))
    try:
        literal = json.loads(right)
    except ValueError:
        problem = f"is {text!r}, and {right!r} is neither a path nor JSON; {_RULE}"
        raise UsageError(problem) from None
    return lambda answer: bool(value_at(answer, left) == literal)


def number(text: str) -> Callable[[Any], int]:
    """Parse `term` into a function of an answer.

    In a regular expression, the first group is the term. The function raises `ValueError` for an
    answer without a number.
    """
    if len(text) > 2 and text[0] == text[-1] == "/":
        pattern = _pattern(text)
        if pattern.groups < 1:
            raise UsageError(f"is {text!r}, which has no group; write /epoch:(\\d+)/")

        def found(answer: Any) -> int:
            match = pattern.search(_as_text(answer))
            if match is None:
                raise ValueError(f"{text} matches nothing in {shown(answer)}")
            return int(match[1])

        return found
    if not _PATH.fullmatch(text):
        raise UsageError(f"is {text!r}; {_RULE}")
    return lambda answer: int(value_at(answer, text))


def _truth(value: Any, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(
        f"{path!r} is {shown(value)}, not true or false; compare it with a value: {path} == VALUE"
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text[1:-1], re.MULTILINE)
    except re.error as error:
        raise UsageError(f"is {text!r}, which is not a regular expression: {error}") from error


def _as_text(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
