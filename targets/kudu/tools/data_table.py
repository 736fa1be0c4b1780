"""Plain-text tables laid out as by Kudu's tools (`DataTable` in `tools/tool_action_common.cc`)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.plugins import Said


def data_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: centred headings, a rule, the rows."""
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


def listing(options: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> Said:
    """Format rows as JSON, or as a table with the rows' keys as headings."""
    if options.format == "json":
        return Said(json.dumps(rows))
    if not rows:
        return Said("")
    lines = data_table(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows])
    return Said("\n".join(lines))
