"""Makes a soak's output for GitHub Actions: a step summary and annotations.

GitHub rejects a summary of more than 1 MiB, and shows about ten annotations of a kind per step. So
both are cut here, with a note. All text from runs is escaped. The summary is HTML without empty
lines, in which GitHub does not interpret Markdown. An annotation is a single line.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from harness.errors import counted, listed
from harness.soak.result import PASSING, FailureGroup, SeedResult, Tally
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
    """Return the step summary, of limited size: headline, table of signatures, and `lines`."""
    parts = [f"<h3>{_inline(_headline(tally, groups, known))}</h3>\n", f"<p>{_inline(title)}</p>\n"]
    after = [f"<p>{_inline(line)}</p>\n" for line in lines]
    size = sum(len(part.encode()) for part in [*parts, *after])
    bytes_max -= 500  # for the table's head, and for a note about left-out signatures
    rows: list[str] = []
    for group in groups:
        row = _row(group, known, replay(group.first))
        size += len(row.encode())
        if size > bytes_max:
            after.insert(
                0,
                f"<p>{len(groups) - len(rows)} more of {len(groups)} signatures are left out, to "
                "stay within what GitHub shows; --json and --junit list them</p>\n",
            )
            break
        rows.append(row)
    if rows:
        heads = ("verdict", "signature", "seeds", "first seed", *_marked(known), "replay")
        head = "".join(f"<th>{name}</th>" for name in heads)
        parts += [f"<table><tr>{head}</tr>\n", *rows, "</table>\n"]
    return "".join(parts + after)


def _headline(tally: Tally, groups: Sequence[FailureGroup], known: KnownFailures) -> str:
    """Return the verdict in a line: `107 of 300 seeds invalid: 1 signature, known (KUDU-1234)`."""
    if not groups:
        counts = ", ".join(f"{n} {name}" for name, n in tally.shown.items() if n)
        return f"{counted(tally.seeds, 'seed')}: {counts}" if counts else "no seed ran"
    words = {name: n for name, n in tally.verdicts.items() if n and name not in PASSING}
    (worst, count), *others = words.items()
    text = f"{count} of {counted(tally.seeds, 'seed')} {worst}"
    text += "".join(f", {n} {name}" for name, n in others)
    text += f": {counted(len(groups), 'signature')}"
    if not known:
        return text
    entries = [known.of(group.signature) for group in groups]
    tickets = sorted({entry.ticket for entry in entries if entry is not None})
    new = entries.count(None)
    marks = [f"{new} new"] if new else []
    if tickets:
        marks.append(f"{len(groups) - new} known ({listed(tickets, limit=5)})")
    return f"{text}, {', '.join(marks)}"


def _marked(known: KnownFailures) -> tuple[str, ...]:
    """Return the heading of the column `new or known`, which exists only if failures are known."""
    return ("new or known",) if known else ()


def _row(group: FailureGroup, known: KnownFailures, replay: str) -> str:
    entry = known.of(group.signature)
    mark = "<b>new</b>" if entry is None else f"known: {_inline(entry.words)}"
    cells = (
        _inline(group.verdict),
        f"<b>{_inline(group.signature)}</b><br>{_inline(group.first.reason)}",
        str(group.count),
        str(group.first.seed),
        *(mark for _ in _marked(known)),
        f"<code>{_inline(replay, characters_max=2000)}</code>",
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def _inline(text: str, *, characters_max: int = REASON_CHARACTERS_MAX) -> str:
    """Make one line of text, escaped for HTML. GitHub interprets no Markdown in HTML blocks."""
    flat = _CONTROL.sub(" ", text)
    if len(flat) > characters_max:
        flat = f"{flat[:characters_max]} ..."
    return html.escape(flat.encode("utf-8", "backslashreplace").decode())


def error_annotations(
    groups: Sequence[FailureGroup], replay: Callable[[SeedResult], str]
) -> list[str]:
    """Return workflow commands that annotate failures, one per signature.

    If there are too many signatures, the last command covers the rest.
    """
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
    """Return an `::error` command, escaped like `core/src/command.ts` of actions/toolkit."""
    text = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    name = name.replace(":", "%3A").replace(",", "%2C")
    return f"::error title={name}::{text}"
