"""Prints results to stdout, even if stdout is closed or full, or a pipe without a reader.

A verb's exit code must not depend on the reader of its output: in `harness run | head -1`, the exit
code of an invalid run is still 1.

In all output, control characters are escaped. Colours and tables come from rich
(`harness.cli.styles`). If the stream is not a terminal, the output is plain text.
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
    """Print text or rich renderables to stdout. If stdout fails, print one note on stderr."""
    try:
        for part in parts:
            print(harmless(part) if isinstance(part, str) else drawn(part, sys.stdout), flush=True)
    except BrokenPipeError:
        _mute(sys.stdout)  # the reader stopped on purpose, as `head` does, so print no note
    except OSError as error:
        _mute(sys.stdout)
        note(f"harness: the results cannot be printed: {error.strerror}")


def note(text: str) -> None:
    """Print `text` on stderr; errors are ignored, since there is no other stream for them."""
    with contextlib.suppress(OSError):
        print(harmless(text), file=sys.stderr, flush=True)


def reader_went_away() -> bool:
    """Whether stdout is a pipe whose reader has closed it."""
    try:
        poll = select.poll()
        # no events are requested: `POLLERR` is always reported
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):  # the stream has no file descriptor
        return False


def flush_output() -> None:
    """Flush stdout and stderr; drop the output silently if the reader has closed the pipe.

    Python also flushes them at exit, but exits with 120 if that fails.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # it was closed when Python started
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
    """Redirect a stream to /dev/null, so that flushing its buffer does not raise again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def ensure_standard_streams() -> None:
    """Open stdin, stdout and stderr on /dev/null if the caller closed them.

    Otherwise the next opened file would get one of their descriptors, and the output of a child
    process could end up in an op log.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
