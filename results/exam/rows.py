"""The rows of an exam, each with a case, the seeds to try, and a rule for detections.

A row tries to find one known defect: either a bug switch or a planted defect. A *clean* row runs a
profile without any defect, so each violation that it reports is a false alarm. Profiles and
workloads that the simulation cannot run have no row. `Paper.refused` has the reasons.
"""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from harness.case import Case
from harness.cli.parser import Parser
from harness.cli.run.case_options import DEFAULT_TARGET, case_from, parse_case_options
from harness.errors import UsageError, unknown_name
from harness.ops import Verdict
from harness.plan.planning import plan_case
from harness.plan.random_case import ANY
from harness.plugins import BugSwitch, Environment, Target
from harness.registry import load_plugin, load_working, plugin_names
from harness.run.keep import SIM
from harness.soak.planting import load_defects
from harness.soak.result import SeedResult

SWITCH: Final = "switch"
DEFECT: Final = "defect"
CLEAN: Final = "clean"
PARTS: Final[Mapping[str, str]] = {"switches": SWITCH, "defects": DEFECT, "clean": CLEAN}
"""The words of `--part`, and the kind of their rows."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the scoreboard. `case` is `None` if no soak is known to find the defect."""

    kind: str
    target: str
    name: str
    title: str
    options: str = ""  # options of `harness soak --env sim`, without a planted defect
    case: Case | None = None
    seeds: range = range(0)
    first: bool = False
    defect: str | None = None  # MODULE:NAME (`harness.soak.planting`)
    expected: str = ""
    # if set, only findings of this checker count, because other findings come from a second bug
    accepted: str | None = None
    reason: str = ""  # the known reason why no seed finds the defect, or empty

    @property
    def key(self) -> str:
        return f"{self.kind} {self.target} {self.name}"

    def is_hit(self, result: SeedResult) -> bool:
        """Whether a result is a detected defect, or a violation in a clean profile."""
        if self.accepted is None:
            return result.verdict == Verdict.INVALID.value
        return any(
            each.checker == self.accepted and each.verdict == Verdict.INVALID.value
            for each in result.checkers
        )


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of an exam, and the names that the simulation cannot run, with reasons."""

    rows: tuple[Row, ...]
    refused: dict[str, str]


def make_paper(
    *,
    parts: Collection[str],
    targets: Collection[str] | None,
    only: Collection[str] | None,
    defects: str | None,
    seeds: range,
    clean_seeds: range,
    first: bool,
) -> Paper:
    """Return the rows of the `parts` of an exam; raise `UsageError` for unknown names.

    `targets` and `only` (names of rows) restrict the rows. `defects` is a module of planted
    defects.
    """
    installed = plugin_names("targets")
    for name in targets or ():
        if name not in installed:
            raise unknown_name("target", name, installed, see="harness list targets")
    rows: list[Row] = []
    refused: dict[str, str] = {}
    loaded = {
        name: target
        for name in (targets or installed)
        if (target := _loaded(name, refused)) is not None
    }
    if SWITCH in parts:
        for name, target in loaded.items():
            rows += _switches(name, target, seeds, first=first, refused=refused)
    if DEFECT in parts and defects is not None:
        rows += _defects(defects, seeds, first=first)
    if CLEAN in parts:
        for name, target in loaded.items():
            rows += _clean(name, target, clean_seeds, refused)
    if only is not None:
        for name in only:
            if all(row.name != name for row in rows):
                raise unknown_name("row of the exam", name, sorted({row.name for row in rows}))
        rows = [row for row in rows if row.name in only]
    return Paper(rows=tuple(rows), refused=refused)


def case_of(words: str, seed: int = 1) -> Case:
    """Return the case of `harness soak --env sim WORDS`; raise `UsageError` for invalid options."""
    parsed = parse_case_options(Parser(prog="harness exam"), shlex.split(words), nemesis=ANY)
    with contextlib.redirect_stderr(io.StringIO()):
        return case_from(parsed, seed)


def words_of(target: str, switch: BugSwitch, *, switched_on: bool = True) -> str:
    """Return the options with which `harness soak --env sim` finds a bug switch.

    `switched_on` adds the option `--bug`, which turns the bug on.
    """
    words = [] if target == DEFAULT_TARGET else [f"--target {target}"]
    words += [f"--bug {switch.id}"] if switched_on else []
    words += [switch.options] if switch.options else []
    return " ".join(words)


def _loaded(name: str, refused: dict[str, str]) -> Target | None:
    try:
        target: Target = load_plugin("targets", name)
    except UsageError as error:
        refused[name] = str(error)
        return None
    return target


def _switches(
    name: str, target: Target, seeds: range, *, first: bool, refused: dict[str, str]
) -> Iterator[Row]:
    environment: Environment = load_plugin("environments", SIM)
    for switch in target.switches():
        about = Row(kind=SWITCH, target=name, name=switch.id, title=switch.title)
        if switch.options is None:
            yield msgspec.structs.replace(about, reason=switch.cause)
            continue
        words = words_of(name, switch)
        case = case_of(words, switch.seed)
        if (why := _refusal(case, environment)) is not None:
            refused[f"{name} {switch.id}"] = why
            continue
        yield msgspec.structs.replace(
            about,
            options=words,
            case=case,
            seeds=seeds,
            first=first,
            expected=switch.checker,
            # A finding that another switch causes is not a detection of this switch.
            accepted=switch.checker if len(case.bugs) > 1 else None,
        )


def _defects(module: str, seeds: range, *, first: bool) -> Iterator[Row]:
    for name, defect in load_defects(module).items():
        case = case_of(defect.options)
        yield Row(
            kind=DEFECT,
            target=case.target,
            name=name,
            title=defect.title,
            options=defect.options,
            case=case,
            seeds=seeds,
            first=first,
            defect=f"{module}:{name}",
            reason=defect.unfound,
        )


def _clean(name: str, target: Target, seeds: range, refused: dict[str, str]) -> Iterator[Row]:
    environment: Environment = load_plugin("environments", SIM)
    workloads = [
        workload
        for workload, plugin in load_working("workloads")
        if plugin.vocabulary in target.vocabularies
    ]
    for profile in target.profiles:
        for workload in workloads:
            words = f"--target {name} --profile {profile} --workload {workload}"
            label = f"{profile} {workload}"
            try:
                case = case_of(words)
            except UsageError as error:
                refused[f"{name} {label}"] = str(error)
                continue
            if (why := _refusal(case, environment)) is not None:
                refused[f"{name} {label}"] = why
                continue
            yield Row(
                kind=CLEAN,
                target=name,
                name=label,
                title=f"{name}, profile {profile}, workload {workload}, without any defect",
                options=words,
                case=case,
                seeds=seeds,
            )


def _refusal(case: Case, environment: Environment) -> str | None:
    try:
        plan_case(case, environment)
    except UsageError as error:
        return str(error)
    return None
