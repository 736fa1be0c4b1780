"""Outcomes of attempts as code and text, and back.

An attempt's outcome is `ok` or an error, usually `CODE: text`. The last attempt usually has the
operation's own error, with ids that no other run has. Storing that text again would take a third of
the table of attempts.
"""

from __future__ import annotations

_BETWEEN = ": "


def outcome_of(said: str, error: str | None) -> tuple[str, str | None]:
    """Code and text; the text is null where there is none, or where `error` says the same.

    Empty, it says that there is none though `error` goes on.
    """
    code, _, rest = said.partition(_BETWEEN)
    if rest:
        return code, None if said == error else rest
    return said, None if said_of(said, None, error) == said else ""


def said_of(code: str, text: str | None, error: str | None) -> str:
    """The outcome again."""
    if text:
        return f"{code}{_BETWEEN}{text}"
    if text is None and error is not None:
        begin, _, rest = error.partition(_BETWEEN)
        if begin == code and rest:
            return error
    return code
