"""Known failures: signatures of failures that a ticket tracks.

The tables `[[known]]` of a TOML file list the known failures:

    [[known]]
    signature = "linearizable-catalog · stale-read"
    ticket = "KUDU-1234"
    note = "leaders have no lease"
    fails = false

An entry covers every signature that begins with its parts, so `checker · rule` covers all kinds of
faults. With `fails = false` the failures do not change exit codes. Failures without an entry are
new; an entry that covers no failure is gone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.errors import UsageError
from harness.verdict.signature import SEPARATOR

KEY: Final = "known"


class KnownFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One known failure. `fails` says whether it still makes a soak or a report fail."""

    signature: str
    ticket: str
    note: str = ""
    fails: bool = True

    @property
    def words(self) -> str:
        """The ticket, and the note if there is one: `KUDU-1234, leaders have no lease`."""
        return ", ".join(part for part in (self.ticket, self.note) if part)


class KnownFailures(msgspec.Struct, frozen=True):
    """All known failures of a file. As a boolean, this is false if there are none."""

    entries: tuple[KnownFailure, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)

    def of(self, signature: str) -> KnownFailure | None:
        """Return the entry that covers a signature, if any; of several, the one with most parts."""
        covering = [
            entry
            for entry in self.entries
            if f"{signature}{SEPARATOR}".startswith(f"{entry.signature}{SEPARATOR}")
        ]
        return max(covering, key=lambda entry: len(entry.signature), default=None)

    def mark(self, signature: str) -> str:
        """Return the end of a failure's line in a list: ` [new]` or ` [known: KUDU-1234]`.

        It is empty if no failures are known.
        """
        entry = self.of(signature)
        new = " [new]" if self else ""
        return new if entry is None else f" [known: {entry.words}]"

    def excuses(self, signature: str) -> bool:
        """Whether a failure with this signature does not change exit codes."""
        entry = self.of(signature)
        return entry is not None and not entry.fails

    def gone(self, signatures: Iterable[str]) -> list[KnownFailure]:
        """Return the entries that cover none of these signatures."""
        seen = [self.of(signature) for signature in signatures]
        return [entry for entry in self.entries if entry not in seen]


NONE_KNOWN: Final = KnownFailures()


def read_known(path: Path) -> KnownFailures:
    """Return the known failures in a file; raises `UsageError` if it has unknown keys."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; name a TOML file") from error
    for key in values:
        if key != KEY:
            raise UsageError(f"{path} has the key {key!r}; the file may only have [[{KEY}]] tables")
    return known_in(values, path)


def known_in(values: dict[str, Any], path: Path) -> KnownFailures:
    """Return the known failures among the values of a file; raises `UsageError`."""
    try:
        entries = msgspec.convert(values.get(KEY, []), type=tuple[KnownFailure, ...])
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: a [[{KEY}]] table is wrong: {error}; the table must have `signature` and "
            "`ticket` (texts), and may have `note` (a text) and `fails` (true or false)"
        ) from error
    for entry in entries:
        if not (entry.signature.strip() and entry.ticket.strip()):
            raise UsageError(
                f"{path}: a [[{KEY}]] table has the signature {entry.signature!r} and the ticket "
                f"{entry.ticket!r}; give both"
            )
    return KnownFailures(entries)
