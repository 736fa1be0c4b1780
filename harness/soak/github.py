"""A soak's output for GitHub Actions: a step summary and annotations.

GitHub rejects a summary of more than 1 MiB and shows about ten annotations of a kind per step, so
both are cut here, with a note. All text from runs is escaped. The summary is HTML without empty
lines, in which GitHub does not interpret Markdown; an annotation is one line.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from harness.errors import counted
from harness.soak.result import FailureGroup, SeedResult, Tally
from harness.verdict.known import NONE_KNOWN, KnownFailures

SUMMARY_BYTES_MAX: Final = 900 * 1024
ANNOTATIONS_MAX: Final = 10
REASON_CHARACTERS_MAX: Final = 500
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def step_summary(
    title: str,
    lines: Iterable[str],
    tally: Tally,
    groups: Sequence[FailureGroup],
    replay: Callable[[SeedResult], str],
    known: KnownFailures = NONE_KNOWN,
    *,
    bytes_max: int = SUMMARY_BYTES_MAX,
) -> str:
    """The summary: a small table, then each signature in a folded block, within the size limit."""
    counts = "".join(
        f"<tr><td>{name}</td><td>{count}</td></tr>" for name, count in tally.shown.items()
    )
    parts = [
        f"<h3>{_inline(title)}</h3>\n",
        f"<table><tr><th>verdict</th><th>seeds</th></tr>{counts}</table>\n",
        *(f"<p>{_inline(line)}</p>\n" for line in lines),
    ]
    size = sum(len(part.encode()) for part in parts)
    bytes_max -= 200  # space for the line about the cut
    for position, group in enumerate(groups):
        part = _folded(group, known.mark(group.signature), replay(group.first))
        size += len(part.encode())
        if size > bytes_max:
            parts.append(
                f"<p>{len(groups) - position} more of {len(groups)} signatures are left out, to "
                "stay within what GitHub shows; --json and --junit list them</p>\n"
            )
            break
        parts.append(part)
    return "".join(parts)


def _folded(group: FailureGroup, mark: str, replay: str) -> str:
    shapes = f"<p>operations: {_inline(group.shapes_text)}</p>" if group.shapes_text else ""
    return (
        f"<details><summary>{_inline(group.verdict)}: {_inline(group.signature)} "
        f"({group.seeds_text}){_inline(mark)}</summary>"
        f"<p>seed {group.first.seed}: {_inline(group.first.reason)}</p>{shapes}"
        f"<pre>{_inline(replay, characters_max=2000)}</pre></details>\n"
    )


def _inline(text: str, *, characters_max: int = REASON_CHARACTERS_MAX) -> str:
    """One line of text, escaped for HTML; GitHub does not interpret Markdown inside HTML blocks."""
    flat = _CONTROL.sub(" ", text)
    if len(flat) > characters_max:
        flat = f"{flat[:characters_max]} ..."
    return html.escape(flat.encode("utf-8", "backslashreplace").decode())


def error_annotations(
    groups: Sequence[FailureGroup], replay: Callable[[SeedResult], str]
) -> list[str]:
    """Workflow commands, one per signature; the last command covers all remaining signatures."""
    cut = len(groups) > ANNOTATIONS_MAX
    lines: list[str] = []
    for group in groups[: ANNOTATIONS_MAX - 1 if cut else ANNOTATIONS_MAX]:
        reason = group.first.reason[:REASON_CHARACTERS_MAX]
        text = f"{group.seeds_text}; seed {group.first.seed}: {reason}"
        text += f"\nreplay: {replay(group.first)}"
        lines.append(_command(f"{group.verdict}: {group.signature}", text))
    if cut:
        more = len(groups) - len(lines)
        lines.append(_command("soak", f"{counted(more, 'more signature')}; see the step's summary"))
    return lines


def _command(title: str, message: str) -> str:
    """An `::error` command with escaped values (as in actions/toolkit, `core/src/command.ts`)."""
    text = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = name.replace(":", "%3A").replace(",", "%2C")
    return f"::error title={name}::{text}"
