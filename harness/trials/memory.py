"""The memory of trials: a file with one line per result. Several searches may share the file.

A trial is one simulated run of a case. Its result depends only on the case and the code, so its key
is a digest of both. Crashes are not stored on disk, so that the next search tries them again. Each
line has a checksum: the trial of a damaged line runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import InfrastructureError
from harness.soak.journal import content_of, framed
from harness.soak.result import CRASH, SeedResult

_DIGEST_BYTES: Final = 12


class _Line(msgspec.Struct, frozen=True):
    trial: str
    result: SeedResult


def trial_key(case: Case, code: str) -> str:
    """Return the key for the result of `case` with the code whose digest is `code`."""
    return hashlib.blake2b(code.encode() + case.encode(), digest_size=_DIGEST_BYTES).hexdigest()


class Memory:
    """Results by key, stored in the file `path`.

    If `path` is `None`, they are kept only in this process. Raises `InfrastructureError` for disk
    errors.
    """

    def __init__(self, path: Path | None) -> None:
        """Read the file, if it exists."""
        self._path = path
        self._results = {} if path is None else dict(_remembered(path))

    def get(self, key: str) -> SeedResult | None:
        return self._results.get(key)

    def add(self, key: str, result: SeedResult) -> None:
        """Store a result. Each line is one `write`, so that killing the process loses no line."""
        self._results[key] = result
        if self._path is None or result.verdict == CRASH:
            return
        # the first line feed ends a line that an earlier kill may have left incomplete
        line = b"\n" + framed(msgspec.json.encode(_Line(key, result)))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            raise InfrastructureError(
                f"cannot write {self._path}: {error.strerror}; free some space, or copy the run or "
                "case to a store that can be written"
            ) from error


def _remembered(path: Path) -> Iterator[tuple[str, SeedResult]]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InfrastructureError(f"cannot read {path}: {error.strerror}") from error
    for line in lines:
        content = content_of(line)
        if content is None:  # the line is empty, or a kill, a full disk or the disk damaged it
            continue
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # another version's
            entry = msgspec.json.decode(content, type=_Line)
            yield entry.trial, entry.result
