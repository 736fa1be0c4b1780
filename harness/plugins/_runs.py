"""Plug-ins that drive, break, judge and report: workloads, nemeses, checkers, reporters."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypedDict, Unpack

from harness.case import Case, Fault, Trigger
from harness.cluster import Capability, NodeSpec
from harness.generator import Generator
from harness.nodes.faults import Aim
from harness.ops import (
    CheckResult,
    Counterexample,
    History,
    ModelSettings,
    Op,
    Request,
)
from harness.plugins._base import Plugin, set_traits
from harness.plugins._systems import Scene, Target
from harness.plugins.options import Option


class WorkloadTraits(TypedDict, total=False):
    """Optional data of a workload, for its class header."""

    target: str
    usual: Mapping[str, Any]


class Workload(Plugin):
    """Operations that clients ask for, in a vocabulary that targets speak."""

    vocabulary: str
    options: tuple[Option, ...]
    checkers: tuple[str, ...]  # names of checkers to run on its histories

    target: str | None = None
    """The target that it takes if the user names none."""
    usual: Mapping[str, Any] = MappingProxyType({})
    """Its defaults for fields of the case, such as {"rate": 120.0}."""

    def __init_subclass__(cls, **traits: Unpack[WorkloadTraits]) -> None:
        set_traits(cls, WorkloadTraits, traits)

    @abstractmethod
    def generator(self, case: Case) -> Generator:
        """Return an endless generator of client operations.

        The harness adds the rate and the time limit.
        """

    @abstractmethod
    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Return one operation of each kind, in an order in which all can succeed one by one.

        Another `attempt` works on other names. A `retry` repeats a request that definitely did
        nothing: it has the same names, but new values where a history needs unique ones (nonces).
        """

    @abstractmethod
    def final(self, case: Case) -> Sequence[Request]:
        """Return the reads that end a run."""

    def needs(
        self, options: Mapping[str, Any], target_options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the target's options that these options require; the user can override them."""
        del options, target_options
        return {}

    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of one seed of a soak: all that are `given`, and drawn ones."""
        del rng
        return dict(given)


class NemesisTraits(TypedDict, total=False):
    """Optional data of a nemesis, for its class header."""

    suits_all: bool
    clients_min: int


class Nemesis(Plugin):
    """One way to break a cluster, aimed by role at the moment of the fault.

    Most are faults in words (`harness.faults.nemesis_from_text.AimedNemesis`).
    """

    requires: frozenset[Capability]

    suits_all: bool = True
    """False for a nemesis that `--nemesis any` draws only if the target names it."""
    clients_min: int = 0
    """The least concurrency with which the clients that it aims at exist."""

    def __init_subclass__(cls, **traits: Unpack[NemesisTraits]) -> None:
        set_traits(cls, NemesisTraits, traits)

    @abstractmethod
    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """Return the schedule over a chaos phase of `horizon_ns`; pure."""

    @abstractmethod
    def aim(self, scene: Scene, fault: Fault) -> Aim:
        """Choose what to break now, and where; pure. `harness.faults.ledger` breaks and heals it.

        `scene.it` is the node whose event `trigger_of(fault)` waited for.
        """

    def check_args(self, args: Mapping[str, Any]) -> None:
        """Raise `UsageError` for arguments that a user wrote into a case and `plan` never draws."""

    def check_target(self, specs: Mapping[str, NodeSpec], target: Target) -> None:
        """Raise `UsageError` for nodes, groups or operations that this target does not have."""

    def needs_leader(self, fault: Fault) -> bool | str:
        """Whether the fault waits for a leader, for at least 5 s; a text names the group."""
        del fault
        return True

    def may_hit(
        self, specs: Mapping[str, NodeSpec], capabilities: Collection[Capability]
    ) -> Sequence[str]:
        """Return the nodes to which it may do something that needs any of these capabilities."""
        del capabilities
        return list(specs)

    def trigger_of(self, fault: Fault) -> Trigger | None:
        """Return the event of a node that the fault waits for, if it waits for one."""
        del fault
        return None


class CheckerTraits(TypedDict, total=False):
    """Optional data of a checker, for its class header."""

    version: str


class Checker(Plugin):
    """A pure function of a history.

    A result that a larger budget could decide says so by a true `limited` in its details.
    """

    version: str | None = None
    """Reports judge again when it changes. Without a version, they do after any change of the
    checker's package or of the bundled checkers."""

    def __init_subclass__(cls, **traits: Unpack[CheckerTraits]) -> None:
        set_traits(cls, CheckerTraits, traits)

    @abstractmethod
    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge; `unknown` with the reason where a bound is hit."""

    def bounded(self, *, steps: int, configurations: int) -> Checker:
        """Return this checker with other bounds of its search, if it searches."""
        del steps, configurations
        return self


# --- models ------------------------------------------------------------------------------------


class PreparedCheck(Protocol):
    """One history, understood by one model and ready to be judged."""

    @property
    def operations(self) -> int:
        """The number of operations to check."""
        ...

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge; with `draw`, an invalid history comes with its counterexample.

        Entries of `details` that the command shows: `configurations` (states of the search),
        `proof` (an object, the certificate of the verdict), and Elle's `anomalies` and `not` (the
        weakest consistency models violated), both lists of names.
        """
        ...


class ModelTraits(CheckerTraits, total=False):
    """Optional data of a model, for its class header."""

    kind: str


class HistoryModel(Checker):
    """A checker that judges the histories of others, too.

    The model reads ops in its own vocabulary of `f` and values.
    """

    kind: str = "model"
    """The option of `harness check` that takes its name: "model" or "elle"."""

    def __init_subclass__(cls, **traits: Unpack[ModelTraits]) -> None:
        set_traits(cls, ModelTraits, traits)

    @abstractmethod
    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        """Understand all ops, executing nothing.

        Raises `HistoryError` with a text that begins with `op N` for ops outside the vocabulary,
        and `UsageError` for settings without a meaning for this model.
        """

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge a run; raises `HistoryError` like `prepare`."""
        prepared = self.prepare(history, ModelSettings(independent=case.independent))
        return prepared.check(time_limit_s=time_limit_s, draw=False)[0]


# --- what comes after a run ------------------------------------------------------------------


class ReporterTraits(TypedDict, total=False):
    """Optional data of a reporter, for its class header."""

    default: bool


class Reporter(Plugin):
    """Makes one artefact of a finished run, such as a page to look at."""

    default: bool = True
    """False for a reporter that is used only if `--reporters` names it."""

    def __init_subclass__(cls, **traits: Unpack[ReporterTraits]) -> None:
        set_traits(cls, ReporterTraits, traits)

    @abstractmethod
    def write(self, folder: Path) -> Path:
        """Make the artefact of the run in `folder` and return its path, inside the folder.

        `run.json` is complete. An exception becomes a note to the user and changes no verdict.
        """


class SoakExecutor(Plugin):
    """Runs the seeds of a soak elsewhere than in workers on this machine."""

    @abstractmethod
    def run(
        self, job: bytes, seeds: Iterator[int], *, url: str, take: Callable[[bytes], bool]
    ) -> None:
        """Run `job` (a `harness.soak.SeedJob` as JSON) for each of `seeds`, in any order.

        Calls `take` with each `harness.soak.SeedResult` as JSON as soon as it exists, and stops
        when it returns false. If the job names a lake, its runs are there before that. Raises
        `UsageError` or `InfrastructureError`.
        """


class SoakSink(Plugin):
    """Keeps the runs of soaks elsewhere than in folders of a store."""

    @abstractmethod
    def open(self, uri: str, *, name: str, prefix: str) -> SunkRuns:
        """Open the place at `uri` for a soak whose runs are called `name/prefix...`.

        Raises `UsageError` before any run is made if the place cannot keep runs.
        """


class SunkRuns(Protocol):
    """The runs of one soak at the place of a `SoakSink`."""

    uri: str

    def holds(self, run: str, digest: str, verdict: str) -> bool:
        """Whether the place has this run, with this content."""
        ...

    def results(self, code: str) -> Iterator[bytes]:
        """The runs there that this code made, as `harness.soak.SeedResult` in JSON.

        A run that the place does not confirm is left out, and made again.
        """
        ...

    def add(self, folder: Path) -> None:
        """Take a finished run. Its folder goes when the run is safe, now or at a later call.

        Raises `InfrastructureError` where it cannot be: the folders stay, to be added again.
        """
        ...

    def flush(self) -> None:
        """Make all added runs safe; raises as `add`, but only once."""
        ...

    def look(self) -> None:
        """Look up runs that other processes added; raises `InfrastructureError`."""
        ...

    def place_of(self, run: str) -> str | None:
        """The place of the files of a run; `None` if only its rows are kept."""
        ...

    def fetch_words(self, run: str, store: str) -> list[str]:
        """The command that makes a folder of `store` of the run again."""
        ...


class Diagnosis(Plugin):
    """Looks for something that parts of the harness use and none needs, such as Java."""

    @abstractmethod
    def look(self) -> tuple[bool, str]:
        """Return whether it is there, and its version or how to get it, for `harness doctor`."""


class Verb(Protocol):
    """A module that is a verb of the command line."""

    def main(self, arguments: Sequence[str]) -> int:
        """Run the verb with the arguments after its name, and return the exit code."""
        ...
