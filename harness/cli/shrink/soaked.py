"""`harness soak --shrink`: shrinks the first failing run of each signature of a soak."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.cli.output import note
from harness.cli.shrink.progress import ShrinkProgress
from harness.cli.shrink.story import headline
from harness.cli.shrink.verb import (
    CPU_S_DEFAULT,
    Limits,
    as_json,
    places_of,
    shrink_and_keep,
    source_of_run,
)
from harness.errors import HarnessError
from harness.ops import Verdict
from harness.soak.result import FailureGroup
from harness.trials.shrink.search import SEEDS_DEFAULT


class ShrunkRun(NamedTuple):
    """A shrunk run of a soak. `lines` is the report as text, and `json` as JSON."""

    signature: str
    lines: list[str]
    json: dict[str, Any]


def shrink_groups(
    groups: Sequence[FailureGroup], folder: Path, *, most: int, jobs: int, quiet: bool
) -> list[ShrunkRun]:
    """Shrink the first run in each of the first `most` groups of invalid seeds.

    The runs are below `folder`. If a run cannot be shrunk, a note says so. Ctrl-C ends the
    shrinking; the runs that are already shrunk are returned.
    """
    limits = Limits(cpu_s=CPU_S_DEFAULT, jobs=jobs, seeds=SEEDS_DEFAULT)
    made: list[ShrunkRun] = []
    invalid = [group for group in groups if group.verdict == Verdict.INVALID.value]
    for group in invalid[:most]:
        if group.first.run is None:
            continue
        progress = None if quiet else ShrinkProgress(limits.cpu_s)
        try:
            source = source_of_run(folder / group.first.run)
            shrunk, kept = shrink_and_keep(source, limits, progress)
        except HarnessError as error:
            note(f"harness: seed {group.first.seed} was not shrunk: {error}")
            continue
        except KeyboardInterrupt:
            note("harness: interrupted; `harness shrink RUN` continues")
            break
        places = [f"{name:8} {text}" for name, text in places_of(source, kept)]
        lines = [f"  shrunk: {headline(shrunk)}", *(f"    {line}" for line in places)]
        made.append(ShrunkRun(group.signature, lines, as_json(source, shrunk, kept)))
    return made
