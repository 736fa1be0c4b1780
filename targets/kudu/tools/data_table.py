"""Tables of text, laid out as Kudu's tools do (`DataTable` in `tools/tool_action_common.cc`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def data_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table: headings in the middle of their columns, a rule, the rows."""
    widths = [
        max(len(heading), *(len(row[i]) for row in rows)) if rows else len(heading)
        for i, heading in enumerate(headings)
    ]
    pairs = list(zip(headings, widths, strict=True))
    yield "|".join(f" {heading:^{width}} " for heading, width in pairs).rstrip()
    yield "+".join("-" * (width + 2) for width in widths)
    for row in rows:
        line = "|".join(f" {cell:<{width}} " for cell, width in zip(row, widths, strict=True))
        yield line.rstrip()
