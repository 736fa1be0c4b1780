"""Output of results: stdout, which may be closed, full, or a pipe whose reader has gone.

All output is text: control characters are escaped. Colours and tables come from rich
(`harness.cli.styles`), and are plain text if the stream is no terminal.

A verb's result is in its exit code, which must not depend on a reader: `harness run | head -1` of
an invalid run exits with 1, not with a crash.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from harness.cli.styles import drawn, harmless

if TYPE_CHECKING:
    from rich.console import RenderableType


def say(*parts: RenderableType) -> None:
    """Print text, or a renderable of rich, as lines of results.

    A stdout that takes none is reported on stderr, once.
    """
    try:
        for part in parts:
            print(harmless(part) if isinstance(part, str) else drawn(part, sys.stdout), flush=True)
    except BrokenPipeError:
        _mute(sys.stdout)  # the reader has what it wanted
    except OSError as error:
        _mute(sys.stdout)
        note(f"harness: the results cannot be printed: {error.strerror}")


def note(text: str) -> None:
    """Print `text` on stderr, if there is still anybody there: there is no further place to go."""
    with contextlib.suppress(OSError):
        print(harmless(text), file=sys.stderr, flush=True)


def reader_went_away() -> bool:
    """Whether stdout is a pipe whose reader has gone."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # errors are always reported
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):  # no file behind it
        return False


def flush_output() -> None:
    """Flush stdout and stderr; drop output silently if its reader has gone.

    Python does the same at exit, but exits with 120 if it fails.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # it was closed when we were started
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            _mute(stream)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError, ValueError):
                _mute(stream)
            if stream is sys.stdout:
                note(f"harness: the results cannot be printed: {error}")


def _mute(stream: TextIO) -> None:
    """Redirect a stream to nothing, so that buffered output does not raise again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def ensure_standard_streams() -> None:
    """Open what the caller closed of stdin, stdout and stderr on nothing.

    Otherwise the next file we open gets their numbers, and what a child process prints would land
    in an op log.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
