"""Writes the output at the end of a soak: text, JSON, JUnit, GitHub's summary and annotations.

Results are read from the journal, one by one. So a soak that was killed and resumed prints the same
results as an uninterrupted one. Long lists are cut, with a note.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import itertools
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness import __version__
from harness.cli.output import note
from harness.cli.project import replay_words
from harness.cli.run.artefacts import make_artefacts
from harness.cli.shrink.soaked import ShrunkRun
from harness.cli.soak.options import BY_SIGNATURE, SIM, words_of_case
from harness.cli.soak.progress import duration_text
from harness.cli.styles import HEADLINE_STYLES, VERDICT_STYLES, joined, styled
from harness.errors import EXIT_VALID, InfrastructureError, clipped, counted
from harness.ops import Verdict
from harness.search.guide import SWARM
from harness.soak.campaign import Campaign
from harness.soak.github import error_annotations, step_summary
from harness.soak.junit import JunitCase, JunitCases, write_junit
from harness.soak.result import CRASH, FailureGroup, SeedResult, failure_groups, memory_bytes_max
from harness.support.atomic_file import replacing
from harness.verdict.known import KEY, KnownFailures

if TYPE_CHECKING:
    from rich.console import RenderableType

GROUPS_SHOWN_MAX: Final = 10
GROUPS_SHOWN_VERBOSE: Final = 50
REASON_CHARACTERS_MAX: Final = 88
RESULTS_MAX: Final = 10_000
SCHEMA_VERSION: Final = 2
INTERRUPTED: Final = "interrupted; finished seeds are kept, and the same command continues"
COMMIT_VARIABLES: Final = ("GITHUB_SHA", "CI_COMMIT_SHA")
_OWN_FILES: Final = {"case.json", "history.parquet", "logs", "results.json", "run.json"}
_MIB: Final = 1024 * 1024


class Replays:
    """Builds the shell commands that replay seeds of this soak."""

    def __init__(self, arguments: Sequence[str], parsed: argparse.Namespace) -> None:
        self._words = ["harness", "run", "--env", parsed.env]
        self._by_file = parsed.case is not None or parsed.search != SWARM
        self._kept = words_of_case(arguments)
        self._kept += [word for word in replay_words() if word not in self._kept]
        if parsed.nemesis is None and not parsed.fault:  # the default of `run` is different
            self._kept += ["--nemesis", parsed.nemesis_default]

    def command(self, campaign: Campaign, result: SeedResult) -> str:
        """Return the shell command that replays one seed, by options or by a case file."""
        if self._by_file:
            file, fetched = campaign.case_file(result), ""
            if file.is_relative_to(Path.cwd()):
                file = file.relative_to(Path.cwd())
            if campaign.sink is not None and result.run is not None and not file.exists():
                fetch = campaign.sink.fetch_words(result.run, str(campaign.spec.store))
                fetched = f"{shlex.join(fetch)} && "
            return fetched + shlex.join([*self._words, "--case", str(file)])
        return shlex.join([*self._words, *self._kept, "--seed", str(result.seed)])


class SinkArtefacts:
    """Makes artefacts of the first failing runs of a soak before each run moves into a lake."""

    def __init__(self, campaign: Campaign, parsed: argparse.Namespace) -> None:
        self._campaign = campaign
        self._names: list[str] = parsed.reporter_names
        self._left: int = parsed.artefacts if campaign.sink is not None else 0

    def make(self, result: SeedResult) -> None:
        """Run the reporters on a run that has just failed and is still in the store."""
        spec = self._campaign.spec
        folder = result.folder(spec.store, spec.name)
        if self._left and result.failed and result.stop is None and folder is not None:
            self._left -= 1
            if folder.is_dir() and result.verdict != CRASH:
                make_artefacts(folder, self._names)


@dataclass(kw_only=True)
class SoakOutput:
    """Writes the outputs of a soak that has ended: text, JSON, files and artefacts."""

    campaign: Campaign
    parsed: argparse.Namespace
    replays: Replays
    wall_s: float
    exit_code: int
    interrupted: bool
    shrunk: list[ShrunkRun] = field(default_factory=list)
    # Measured now, because reporters load dependencies whose memory is not the soak's.
    memory_bytes: int = field(default_factory=memory_bytes_max)

    def _replay(self, result: SeedResult) -> str:
        return self.replays.command(self.campaign, result)

    def _folder(self, result: SeedResult) -> str:
        return self.campaign.place_of(result)

    def _failing(self) -> Iterator[SeedResult]:
        return (result for result in self.campaign.results() if result.failed)

    @functools.cached_property
    def _groups(self) -> list[FailureGroup]:
        return failure_groups(self.campaign.results())

    @property
    def _known(self) -> KnownFailures:
        failures: KnownFailures = self.parsed.known_failures
        return failures

    def _gone(self, groups: Sequence[FailureGroup]) -> list[str]:
        """Return a line for each known failure that did not occur."""
        return [
            f"gone: {entry.signature} ({entry.words}): no seed failed in this way"
            for entry in self._known.gone(group.signature for group in groups)
        ]

    def make_artefacts(self) -> None:
        """Run the reporters on the first failing runs that have no artefacts yet.

        After an interrupt, none are made: the user wants to stop now, and may resume later.
        """
        names: list[str] = [] if self.interrupted else self.parsed.reporter_names
        if self.campaign.sink is not None:
            return  # `SinkArtefacts` made them before the runs moved into the lake
        kept = (result for result in self._failing() if result.run is not None)
        for result in itertools.islice(kept, self.parsed.artefacts if names else 0):
            folder = Path(self._folder(result))
            if {path.name for path in folder.iterdir()} <= _OWN_FILES:
                make_artefacts(folder, names)

    def write_files(self) -> None:
        """Write the requested files. If one fails, the others are still written.

        Raises `InfrastructureError` at the end if any file could not be written.
        """
        errors: list[str] = []
        for write in (self._write_junit, self._write_json, self._write_github):
            try:
                write()
            except InfrastructureError as error:
                errors.append(str(error))
        if errors:
            raise InfrastructureError("; ".join(errors))

    def _write_junit(self) -> None:
        if self.parsed.junit is None:
            return
        campaign, spec = self.campaign, self.campaign.spec
        properties = {
            "seeds": f"{spec.first}..{spec.last}",
            "version": __version__,
            "code": campaign.id.code,
            "environment": spec.environment,
            "store": str(spec.folder),
            "interrupted": str(self.interrupted).lower(),
        }
        if spec.label is not None:
            properties["label"] = spec.label
        commit = next((os.environ[name] for name in COMMIT_VARIABLES if os.environ.get(name)), None)
        if commit is not None:
            properties["commit"] = commit
        cases = JunitCases(replay=self._replay, folder=self._folder, known_failures=self._known)
        groups = self._groups if self.parsed.junit_group == BY_SIGNATURE else []
        passing = campaign.tally.seeds - campaign.tally.failed

        def listed() -> Iterator[JunitCase]:
            if self.parsed.junit_group == BY_SIGNATURE:
                return cases.by_signature(groups, passing=passing)
            return cases.by_seed(campaign.results())

        write_junit(
            self.parsed.junit,
            listed,
            suite=f"soak.{spec.name}",
            started=dt.datetime.now(dt.UTC) - dt.timedelta(seconds=self.wall_s),
            wall_s=self.wall_s,
            properties=properties,
            unfinished=campaign.stopped or (INTERRUPTED if self.interrupted else None),
        )

    def _write_json(self) -> None:
        path = self.parsed.summary_json
        if path is None:
            return
        try:
            with replacing(path) as file:
                file.write(self.json() + "\n")
        except OSError as error:
            raise InfrastructureError(
                f"cannot write the summary {path}: {error.strerror}; choose another --summary-json"
            ) from error

    def _write_github(self) -> None:
        name = self.parsed.github_summary
        if name is None:
            return
        spec, tally = self.campaign.spec, self.campaign.tally
        title = f"Soak {spec.name}: seeds {spec.first}..{spec.last} in {spec.environment}"
        groups = self._groups
        head = [*self._head(), *self._gone(groups)]
        text = step_summary(title, head, tally, groups, self._replay, self._known)
        try:
            # append, because other CI steps write to the same file
            with Path(name).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InfrastructureError(
                f"cannot write the step summary {name}: {error.strerror}"
            ) from error
        unexcused = [group for group in groups if not self._known.excuses(group.signature)]
        for line in error_annotations(unexcused, self._replay):
            note(line)

    def json(self) -> str:
        campaign, spec, tally = self.campaign, self.campaign.spec, self.campaign.tally
        groups = self._groups
        content: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "soak": str(campaign.id),
            "environment": spec.environment,
            "label": spec.label,
            "store": str(spec.folder),
            "lake": None if campaign.sink is None else campaign.sink.uri,
            "search": campaign.search_record,
            "wanted": spec.seeds,
            "seeds": tally.seeds,
            "done_before": campaign.done_before,
            "verdicts": tally.verdicts,
            "permitted": {
                name: {"seeds": seeds, "times": times}
                for name, (seeds, times) in sorted(tally.permitted.items())
            },
            "exit_code": self.exit_code,
            "interrupted": self.interrupted,
            "stopped": campaign.stopped,
            "wall_s": self.wall_s,
            "cpu_s": tally.cpu_s,
            "simulated_s": tally.simulated_s,
            "ops": tally.ops,
            "leader_changes": tally.leader_changes,
            "worker_memory_bytes_max": tally.memory_bytes_max,
            "driver_memory_bytes_max": self.memory_bytes,
            "passing_runs_kept": tally.valid_kept,
            "passing_run_bytes": self._bytes_a_passing_run(),
            "store_bytes": tally.valid_bytes + tally.failing_bytes,
            "signatures": [
                {
                    "signature": group.signature,
                    "verdict": group.verdict,
                    "count": group.count,
                    "shapes": dict(group.shapes.most_common()),
                    "known": self._known.of(group.signature),
                    "seeds": group.seeds,
                    "reason": group.first.reason,
                    "replay": self._replay(group.first),
                    "run": self._folder(group.first) or None,
                }
                for group in groups
            ],
            "shrunk": [each.json for each in self.shrunk],
            "gone": self._known.gone(group.signature for group in groups),
            "results_left_out": max(0, tally.seeds - RESULTS_MAX),
            "results": [self._entry(result) for result in self._chosen()],
        }
        return msgspec.json.encode(content).decode()

    def _entry(self, result: SeedResult) -> dict[str, Any]:
        entry: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(result, reached=None))
        entry["run"] = self._folder(result) or None
        entry["replay"] = self._replay(result)
        return entry

    def _chosen(self) -> list[SeedResult]:
        """Return the results for the JSON output: at most `RESULTS_MAX`, failing ones first."""
        tally = self.campaign.tally
        if tally.seeds <= RESULTS_MAX:
            return list(self.campaign.results())
        failing = list(itertools.islice(self._failing(), RESULTS_MAX))
        passing = (result for result in self.campaign.results() if not result.failed)
        return failing + list(itertools.islice(passing, RESULTS_MAX - len(failing)))

    def _bytes_a_passing_run(self) -> float | None:
        tally = self.campaign.tally
        return tally.valid_bytes / tally.valid_kept if tally.valid_kept else None

    def _head(self) -> list[str]:
        campaign, spec, tally = self.campaign, self.campaign.spec, self.campaign.tally
        counts = ", ".join(f"{count} {name}" for name, count in tally.shown.items())
        before = f" ({campaign.done_before} of them before)" if campaign.done_before else ""
        lines = [f"{tally.seeds} of {counted(spec.seeds, 'seed')}{before}: {counts}"]
        here = duration_text(self.wall_s)
        simulated = spec.environment == SIM
        took = f"{tally.simulated_s:.0f} simulated s in {here}" if simulated else f"{here} real"
        lines.append(
            f"{took}, {tally.cpu_s:.1f} CPU s: {counted(tally.ops, 'operation')}, "
            f"{counted(tally.leader_changes, 'leader change')}"
        )
        kept = self._bytes_a_passing_run()
        passing = "" if kept is None else f" ({kept / 1024:.0f} KiB per passing run)"
        total = (tally.valid_bytes + tally.failing_bytes) / _MIB
        if campaign.sink is None:
            lines.append(f"store: {spec.folder}, {total:.1f} MiB{passing}")
        else:
            lines.append(f"lake: {campaign.sink.uri}")
        worker = f"{tally.memory_bytes_max / _MIB:.0f} MiB per worker, " if simulated else ""
        lines.append(f"peak memory: {worker}{self.memory_bytes / _MIB:.0f} MiB driver")
        if states := campaign.states:
            lines.append(
                f"search: {counted(states, 'state')} reached, "
                f"{counted(len(campaign.guide.corpus.entries), 'case')} in "
                f"{campaign.corpus_folder}"
            )
        if self.interrupted:
            lines.append(INTERRUPTED)
        elif campaign.stopped is not None:
            lines.append(f"stopped: {campaign.stopped}")
        elif campaign.enough and tally.seeds < spec.seeds:
            lines.append(f"stopped after {counted(tally.failed, 'failing seed')}")
        return lines

    def _permitted(self) -> list[str]:
        permitted = sorted(
            self.campaign.tally.permitted.items(), key=lambda item: (-item[1][0], item[0])
        )
        if not permitted:
            return []
        rows = [f"  {name:24} {seeds:6} {times:6}" for name, (seeds, times) in permitted]
        head = f"permitted by the profile {self.campaign.spec.case.profile!r}:"
        return [head, f"  {'':24} {'seeds':>6} {'times':>6}", *rows]

    def text(self) -> list[RenderableType]:
        """Format the result as text; the last line has the verdict and the next step."""
        groups = self._groups
        most = GROUPS_SHOWN_VERBOSE if self.parsed.verbose else GROUPS_SHOWN_MAX
        parts: list[RenderableType] = []
        for group in groups[:most]:
            first = group.first
            reason = first.reason.splitlines()[0] if first.reason else "no reason given"
            style = VERDICT_STYLES[group.verdict]
            about = f": {group.signature} ({group.seeds_text}){self._known.mark(group.signature)}"
            parts.append(joined(styled(group.verdict, style), about))
            text = reason if self.parsed.verbose else clipped(reason, REASON_CHARACTERS_MAX)
            if group.shapes_text:
                parts.append(f"  operations: {group.shapes_text}")
            parts.append(f"  seed {first.seed}: {text}")
            parts.append(f"  {self._replay(first)}")
            parts += [
                line
                for each in self.shrunk
                if each.signature == group.signature
                for line in each.lines
            ]
            if self.parsed.verbose and (place := self._folder(first)):
                parts.append(f"  {place}")
        if len(groups) > most:
            more = counted(len(groups) - most, "more signature")
            parts.append(f"... and {more}; --json lists them")
        parts += self._gone(groups)
        parts += [*self._permitted(), *([""] if parts else []), *self._head()]
        return [*parts, "", self._verdict(groups)]

    def _verdict(self, groups: list[FailureGroup]) -> RenderableType:
        tally, seeds = self.campaign.tally, self.campaign.spec.seeds
        excused = sum(g.count for g in groups if self._known.excuses(g.signature))
        groups = [group for group in groups if not self._known.excuses(group.signature)]
        worst = [group for group in groups if group.verdict == groups[0].verdict]
        if worst:
            words = worst[0].verdict
            first = min((group.first for group in worst), key=lambda result: result.seed)
            about = (
                f"{sum(group.count for group in worst)} of {counted(tally.seeds, 'seed')}, "
                f"{counted(len(worst), 'signature')}, first: seed {first.seed}"
            )
            where = f"; replay: {self._replay(first)}"
        else:
            passed = self.exit_code == EXIT_VALID
            permitted = tally.verdicts[Verdict.PERMITTED.value]
            good = Verdict.PERMITTED if permitted else Verdict.VALID
            words = (good if passed else Verdict.UNKNOWN).value
            words = KEY if passed and excused else words
            about = f"{tally.seeds} of {counted(seeds, 'seed')}: "
            about += "every promise checked was kept" if tally.seeds else "nothing was checked"
            about += "" if passed or not tally.seeds else ", but not all seeds ran"
            if permitted:
                about += f", except for what the profile permits ({counted(permitted, 'seed')})"
            if excused:
                about += f", except for known failures ({counted(excused, 'seed')})"
            where = "" if passed else "; the same command continues"
        return joined(styled(f"{words.upper()}  {about}", HEADLINE_STYLES[words]), where)
