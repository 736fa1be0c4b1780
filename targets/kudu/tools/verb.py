"""`harness kudu`: Kudu's own tool, for a cluster that `harness up` started."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from harness.plugins import Said
from harness.up.control_socket import UseTool
from harness.up.lifecycle import question
from harness.up.records import find_place
from targets.kudu.tools.arguments import parse


def main(arguments: Sequence[str]) -> int:
    """Print the tool's output; the exit code is 0, or 1 if the cluster or the call failed."""
    place = find_place(parse(arguments).cluster)
    answer = question(place, UseTool(arguments=tuple(arguments)))
    output = msgspec.convert(answer, Said)
    if output.text:
        print(output.text)  # noqa: T201 - the tool's output
    if output.error:
        print(output.error, file=sys.stderr)  # noqa: T201
    return output.exit_code
