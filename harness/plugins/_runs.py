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
    Completion,
    Counterexample,
    History,
    ModelSettings,
    Op,
    OpType,
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
    """A workload: the operations of clients, in a vocabulary that targets implement."""

    vocabulary: str
    options: tuple[Option, ...]
    checkers: tuple[str, ...]  # the checkers that judge its histories

    target: str | None = None
    """The target that the workload uses if the user names none."""
    usual: Mapping[str, Any] = MappingProxyType({})
    """The workload's defaults for fields of the case, such as {"rate": 120.0}."""

    def __init_subclass__(cls, **traits: Unpack[WorkloadTraits]) -> None:
        set_traits(cls, WorkloadTraits, traits)

    @abstractmethod
    def generator(self, case: Case) -> Generator:
        """Return an endless generator of client operations.

        The harness adds the rate and the time limit.
        """

    @abstractmethod
    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Return one operation of each kind, in an order in which all of them can succeed.

        Each `attempt` uses other names. A `retry` repeats a request that definitely did nothing:
        the names stay the same, but values that must be unique in a history (nonces) are new.
        """

    @abstractmethod
    def final(self, case: Case) -> Sequence[Request]:
        """Return the final reads of a run."""

    def serves(self, completion: Completion) -> bool:
        """Whether an answer to an operation of `probe` or `final` shows that the system serves it.

        If not, the harness asks again.
        """
        return completion.type is OpType.OK

    def needs(
        self, options: Mapping[str, Any], target_options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the target options that these workload options require.

        The user can override them.
        """
        del options, target_options
        return {}

    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options for one seed of a soak: all options in `given`, and random ones."""
        del rng
        return dict(given)


class NemesisTraits(TypedDict, total=False):
    """Optional data of a nemesis, for its class header."""

    suits_all: bool
    clients_min: int


class Nemesis(Plugin):
    """One way to break a cluster. The targets are chosen by role when the fault begins.

    Most nemeses are faults in words (`harness.faults.nemesis_from_text.AimedNemesis`).
    """

    requires: frozenset[Capability]

    suits_all: bool = True
    """False for a nemesis that `--nemesis any` draws only if the target names it."""
    clients_min: int = 0
    """How many clients a run needs, so that every client that the nemesis names exists."""

    def __init_subclass__(cls, **traits: Unpack[NemesisTraits]) -> None:
        set_traits(cls, NemesisTraits, traits)

    def for_target(self, target: Target) -> Nemesis:
        """Return the nemesis that plans faults for this target; by default this nemesis itself."""
        del target
        return self

    @abstractmethod
    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """Return the faults of a chaos phase that lasts `horizon_ns`; must be pure."""

    @abstractmethod
    def aim(self, scene: Scene, fault: Fault) -> Aim:
        """Choose the fault and its targets at this moment; must be pure.

        `harness.faults.ledger` injects and heals the fault. `scene.it` is the node of the event
        that `trigger_of(fault)` waited for.
        """

    def check_args(self, args: Mapping[str, Any]) -> None:
        """Raise `UsageError` for wrong arguments. Only a handwritten case can have these."""

    def check_target(self, specs: Mapping[str, NodeSpec], target: Target) -> None:
        """Raise `UsageError` for nodes, groups or operations that this target does not have."""

    def needs_leader(self, fault: Fault) -> bool | str:
        """Whether the fault first waits for a leader. A string is the leader's group."""
        del fault
        return True

    def may_hit(
        self, specs: Mapping[str, NodeSpec], capabilities: Collection[Capability]
    ) -> Sequence[str]:
        """Return the nodes that the nemesis may choose for faults that need `capabilities`."""
        del capabilities
        return list(specs)

    def trigger_of(self, fault: Fault) -> Trigger | None:
        """Return the event of a node that the fault waits for, or `None`."""
        del fault
        return None


class CheckerTraits(TypedDict, total=False):
    """Optional data of a checker, for its class header."""

    version: str
    judges_prefixes: bool


class Checker(Plugin):
    """A checker. Its result depends only on the history, the case and its limits.

    If more time or memory could decide an unknown result, its details have `limited: True`.
    """

    version: str | None = None
    """The version of the checker. If it changes, reports judge runs again. Without a version,
    reports judge runs again after any change of the checker's package or of the bundled checkers.
    """
    judges_prefixes: bool = False
    """Whether the checker may judge the first part of a run that is still in progress (`harness run
    --freeze`). If it finds such a part invalid, the whole run must be invalid, although open
    operations may take effect later, and final reads and snapshots are still to come."""

    def __init_subclass__(cls, **traits: Unpack[CheckerTraits]) -> None:
        set_traits(cls, CheckerTraits, traits)

    @abstractmethod
    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge the history; `unknown`, with the reason, if a limit is reached."""

    def bounded(self, *, steps: int, configurations: int) -> Checker:
        """Return a copy with other search limits, or this checker if it does not search."""
        del steps, configurations
        return self


# --- models ------------------------------------------------------------------------------------


class PreparedCheck(Protocol):
    """A history that a model has parsed and can judge."""

    @property
    def operations(self) -> int:
        """The number of operations to check."""
        ...

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge the history; with `draw`, also return the counterexample of an invalid history.

        `harness check` shows these entries of `details`: `configurations` (states of the search),
        `proof` (an object, the certificate of the verdict), and Elle's `anomalies` and `not` (the
        weakest consistency models violated), both lists of names.
        """
        ...


class ModelTraits(CheckerTraits, total=False):
    """Optional data of a model, for its class header."""

    kind: str
    milder: str | None


class HistoryModel(Checker):
    """A checker that also judges histories of other tools.

    The model reads ops in its own vocabulary of `f` and values.
    """

    kind: str = "model"
    """The option of `harness check` that selects the model: "model" or "elle"."""
    milder: str | None = None
    """The name of a more permissive model of the same operations. If this model was only guessed
    from a history, the verdict is invalid only if the milder model agrees."""

    def __init_subclass__(cls, **traits: Unpack[ModelTraits]) -> None:
        set_traits(cls, ModelTraits, traits)

    @abstractmethod
    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        """Parse all ops without judging them.

        Raises `HistoryError` for ops outside the vocabulary. Its message begins with `op N`.
        Raises `UsageError` for settings that have no meaning for this model.
        """

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge a run; raises `HistoryError` like `prepare`."""
        prepared = self.prepare(history, ModelSettings(independent=case.independent))
        return prepared.check(time_limit_s=time_limit_s, draw=False)[0]


# --- after a run ---------------------------------------------------------------------------------


class ReporterTraits(TypedDict, total=False):
    """Optional data of a reporter, for its class header."""

    default: bool


class Reporter(Plugin):
    """Makes one artefact of a finished run, such as a page."""

    default: bool = True
    """False for a reporter that runs only if `--reporters` is `all` or names it."""

    def __init_subclass__(cls, **traits: Unpack[ReporterTraits]) -> None:
        set_traits(cls, ReporterTraits, traits)

    @abstractmethod
    def write(self, folder: Path) -> Path:
        """Make the artefact of the run in `folder`; returns its path, inside the folder.

        `run.json` is already complete. An exception becomes a note to the user and changes no
        verdict.
        """


class SoakExecutor(Plugin):
    """Runs the seeds of a soak outside of this machine's worker processes."""

    @abstractmethod
    def run(
        self, job: bytes, seeds: Iterator[int], *, url: str, take: Callable[[bytes], bool]
    ) -> None:
        """Run `job` (a `harness.soak.SeedJob` as JSON) for each of `seeds`, in any order.

        Calls `take` with each `harness.soak.SeedResult` as JSON as soon as it exists, and stops
        when `take` returns false. If the job names a lake, each run is in the lake before `take` is
        called. Raises `UsageError` or `InfrastructureError`.
        """


class SoakSink(Plugin):
    """A place that keeps the runs of soaks, other than a store's folders, such as a lake."""

    @abstractmethod
    def open(self, uri: str, *, name: str, prefix: str) -> SunkRuns:
        """Open the place at `uri` for a soak whose runs are called `name/prefix...`.

        Raises `UsageError`, before any run is made, if the place cannot keep runs.
        """


class SunkRuns(Protocol):
    """The runs of one soak in a `SoakSink`."""

    uri: str

    def holds(self, run: str, digest: str, verdict: str) -> bool:
        """Whether the sink has the run with this digest and verdict."""
        ...

    def results(self, code: str) -> Iterator[bytes]:
        """Yield the runs in the sink that the code version `code` made, as JSON of `SeedResult`.

        A run is left out if the sink cannot confirm that it has stored it. The soak then runs its
        seed again.
        """
        ...

    def add(self, folder: Path) -> None:
        """Add a finished run. Its folder is removed once the sink has stored the run.

        The sink stores the run now or in a later call. Raises `InfrastructureError` if runs cannot
        be stored. Their folders then stay, to be added again.
        """
        ...

    def flush(self) -> None:
        """Store all added runs. Raises like `add`. After a failure, later calls do nothing."""
        ...

    def look(self) -> None:
        """Look for runs that other processes have added; raises `InfrastructureError`."""
        ...

    def place_of(self, run: str) -> str | None:
        """Return the address of the folder in which the sink keeps a run, if it has folders."""
        ...

    def fetch_words(self, run: str, store: str) -> list[str]:
        """Return the command that restores the run as a folder of `store`."""
        ...


class Diagnosis(Plugin):
    """A check for an optional dependency of the harness, such as Java."""

    @abstractmethod
    def look(self) -> tuple[bool, str]:
        """Return whether the dependency is installed, and its version or how to install it.

        `harness doctor` shows both.
        """


class Verb(Protocol):
    """A module with a verb of the command line."""

    def main(self, arguments: Sequence[str]) -> int:
        """Run the verb with the arguments after its name; returns the exit code."""
        ...
