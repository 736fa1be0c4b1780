"""`harness soak`: many seeds of one case in the simulation, in parallel."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.cli.case_options import case_from, parse_case_options
from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.run_verb import default_name
from harness.errors import EXIT_INTERRUPTED, EXIT_INVALID, UsageError
from harness.ops import Verdict
from harness.planning import plan_case
from harness.plugins import Environment, load_plugin
from harness.soak import SeedResult, exit_code_of, soak

__all__ = ["main", "parse_seeds"]

SEEDS_MAX: Final = 10_000_000
FAILURES_SHOWN_MAX: Final = 50
PROGRESS_INTERVAL_S: Final = 2.0
JOBS_MAX: Final = 512
_OWN_FLAGS: Final = ("--env", "--seeds", "--jobs", "--stop-after", "--json")


def main(arguments: Sequence[str]) -> int:
    """Run all seeds; the exit code is that of the worst verdict."""
    parsed = _parse(arguments)
    if parsed.env != "sim":
        raise UsageError(
            f"--env is {parsed.env!r}; a soak runs in the simulation: use --env sim, or "
            "`harness run` for one run elsewhere"
        )
    if not 1 <= parsed.jobs <= JOBS_MAX:
        raise UsageError(f"--jobs is {parsed.jobs}; it must be in 1 .. {JOBS_MAX}")
    if parsed.seed is not None:
        raise UsageError("a soak takes --seeds A..B, not --seed")
    first, last = parse_seeds(parsed.seeds)
    base = case_from(parsed, None if parsed.case is not None else first)
    environment: Environment = load_plugin("environments", "sim")
    plan_case(base, environment)  # refuse bad cases before any worker starts
    if parsed.case is not None:
        base = msgspec.structs.replace(base, faults=None)
    name = parsed.name or default_name(base)
    reporter = _Reporter(last - first + 1, parsed.stop_after, quiet=parsed.json)
    cases = (msgspec.structs.replace(base, seed=seed) for seed in range(first, last + 1))
    begin_s = time.monotonic()
    interrupted = False
    try:
        asyncio.run(
            soak(
                cases,
                jobs=parsed.jobs,
                store=parsed.store,
                name=name,
                on_result=reporter.take,
            )
        )
    except KeyboardInterrupt:
        interrupted = True
    results = sorted(reporter.results, key=lambda result: result.seed)
    wall_s = time.monotonic() - begin_s
    code = exit_code_of(results)
    if interrupted and code != EXIT_INVALID:
        code = EXIT_INTERRUPTED
    replays = _Replays(arguments)
    if parsed.json:
        say(_json(results, replays, wall_s, code, interrupted=interrupted))
    else:
        say("\n".join(_text(results, replays, wall_s, last - first + 1)))
    return code


def parse_seeds(text: str) -> tuple[int, int]:
    """First and last seed from `A..B` or a single `A`; raises `UsageError`."""
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if match is None:
        raise UsageError(f"--seeds is {text!r}; write a range such as 1..200, both ends included")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first or last - first >= SEEDS_MAX or last >= 2**63:
        raise UsageError(
            f"--seeds is {text!r}; the second number must not be below the first, and at most "
            f"{SEEDS_MAX} seeds go into one soak"
        )
    return first, last


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness soak",
        description="Run many seeds of one case in the simulation, each in a fresh world.",
        epilog="example:\n  harness soak --env sim --seeds 1..200 --nemesis kill-leader --jobs 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--env", default="sim", metavar="ENV", help="sim (default: sim)")
    parser.add_argument(
        "--seeds", required=True, metavar="A..B", help="the seeds to run, both ends included"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="worker processes (default: one a core, here %(default)s)",
    )
    parser.add_argument(
        "--stop-after",
        type=int,
        default=0,
        metavar="N",
        help="stop after N seeds that were not valid; 0 runs all (default: 0)",
    )
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--name", metavar="NAME", help="folder below the store for failing runs")
    parser.add_argument(
        "--store", type=Path, default=Path("store"), metavar="DIR", help="(default: store)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    return parse_case_options(parser, arguments)


class _Reporter:
    """Collects results and shows progress on stderr."""

    def __init__(self, total: int, stop_after: int, *, quiet: bool) -> None:
        self.results: list[SeedResult] = []
        self._total = total
        self._stop_after = stop_after
        self._quiet = quiet
        self._begin_s = self._shown_s = time.monotonic()
        self._failed = 0

    def take(self, result: SeedResult) -> bool:
        """Take one result; whether to go on."""
        self.results.append(result)
        now_s = time.monotonic()
        if result.verdict != Verdict.VALID.value:
            self._failed += 1
            if not self._quiet:
                note(f"seed {result.seed}: {result.verdict}: {result.reason}")
        if not self._quiet and now_s - self._shown_s >= PROGRESS_INTERVAL_S:
            self._shown_s = now_s
            done = len(self.results)
            left_s = (now_s - self._begin_s) / done * (self._total - done)
            note(
                f"{done}/{self._total} seeds, {self._failed} not valid, about {left_s:.0f} s to go"
            )
        return self._stop_after == 0 or self._failed < self._stop_after


class _Replays:
    """The one command that runs one seed of this soak again."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._kept: list[str] = []
        skip = False
        for item in arguments:
            if skip:
                skip = False
            elif item in _OWN_FLAGS:
                skip = item != "--json"
            elif not item.startswith(tuple(f"{flag}=" for flag in _OWN_FLAGS)):
                self._kept.append(item)

    def command(self, result: SeedResult) -> str:
        """A shell command: by the kept case where there is one, else by the seed."""
        words = ["harness", "run", "--env", "sim"]
        if result.run is not None:
            return shlex.join([*words, "--case", f"{result.run}/case.json"])
        return shlex.join([*words, *self._kept, "--seed", str(result.seed)])


def _json(
    results: list[SeedResult], replays: _Replays, wall_s: float, code: int, *, interrupted: bool
) -> str:
    verdicts = Counter(result.verdict for result in results)
    seeds = [
        {**msgspec.to_builtins(result), "replay": replays.command(result)} for result in results
    ]
    return msgspec.json.encode(
        {
            "schema_version": 1,
            "seeds": len(results),
            "verdicts": dict(sorted(verdicts.items())),
            "exit_code": code,
            "interrupted": interrupted,
            "wall_s": wall_s,
            "results": seeds,
        }
    ).decode()


def _text(results: list[SeedResult], replays: _Replays, wall_s: float, planned: int) -> list[str]:
    verdicts = Counter(result.verdict for result in results)
    simulated_s = sum(result.simulated_s for result in results)
    counts = ", ".join(
        f"{verdicts.get(name, 0)} {name}" for name in ("valid", "invalid", "unknown", "crash")
    )
    ops = sum(result.ops for result in results)
    changes = sum(result.leader_changes for result in results)
    lines = [
        f"{len(results)} of {planned} seeds: {counts}",
        f"{simulated_s:.0f} simulated s in {wall_s:.1f} s: {ops} ops, {changes} leader changes",
    ]
    failing = [result for result in results if result.verdict != Verdict.VALID.value]
    for result in failing[:FAILURES_SHOWN_MAX]:
        lines.append(f"seed {result.seed}: {result.verdict} ({result.checker}): {result.reason}")
        lines.append(f"  {replays.command(result)}")
    if len(failing) > FAILURES_SHOWN_MAX:
        lines.append(f"... and {len(failing) - FAILURES_SHOWN_MAX} more; --json lists all")
    return lines
