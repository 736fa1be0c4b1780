"""What drives, breaks, judges and shows: workloads, nemeses, checkers, reports."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from harness.case import Case, Fault
from harness.cluster import Capability
from harness.nodes.faults import Aim
from harness.ops import (
    CheckResult,
    Counterexample,
    History,
    ModelSettings,
    Op,
)
from harness.plugins._base import Plugin, set_traits
from harness.plugins._systems import Request, Scene
from harness.plugins.options import Option

if TYPE_CHECKING:
    from harness.generator import Generator


class Workload(Protocol):
    """What clients ask for, in one vocabulary that targets speak.

    Optional: `usual`, values of fields of the case that are its defaults: {"rate": 120.0}.
    """

    api_version: int
    name: str
    doc: str
    vocabulary: str
    options: tuple[Option, ...]
    checkers: tuple[str, ...]  # names of checkers to run on its histories

    def generator(self, case: Case) -> Generator:
        """An endless generator of client operations; rate and time limit are added around it."""
        ...

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """One operation of every kind, in an order in which all can succeed; run one by one.

        Another `attempt` works on other names. A `retry` repeats a request that definitely did
        nothing: the same names, but whatever must be unique in a history (nonces) is new.
        """
        ...

    def final(self, case: Case) -> Sequence[Request]:
        """The reads that end a run."""
        ...


class Nemesis(Protocol):
    """One way to break a cluster, aimed by role at the moment of the fault.

    Most are faults in words (`harness.faults.nemesis_from_text.AimedNemesis`). Some attributes are
    optional. With methods `check_args(args)` and `check_target(specs, target)`, which raise
    `UsageError`, faults that were written by hand are refused before anything starts.
    `needs_leader` is false for a nemesis that does not aim at the leader (default: true);
    `needs_leader_for(fault)` says it of one fault, by a bool or the name of the group.
    `may_hit(specs, capabilities)` names those nodes to which it may do what needs any of these
    (default: all). `suits_all` is false for one that only some targets name in `nemeses`.
    `clients_min` says how many clients there must be at once (default: it names none).
    """

    api_version: int
    name: str
    doc: str
    requires: frozenset[Capability]

    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """The schedule over a chaos phase of `horizon_ns`; pure."""
        ...

    def aim(self, scene: Scene, fault: Fault) -> Aim:
        """What to break now, and of whom; pure. `harness.faults.ledger` breaks and heals it.

        `scene.it` is the node whose event `trigger_of(fault)` asked to wait for, which is optional.
        """
        ...


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
        super().__init_subclass__()
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
        """How many operations will be checked."""
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
        super(Checker, cls).__init_subclass__()
        set_traits(cls, ModelTraits, traits)

    @abstractmethod
    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        """Understand all ops, executing nothing.

        Raises `HistoryError` whose text begins with `op N` for what is not in the vocabulary, and
        `UsageError` for settings that mean nothing to this model.
        """

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge a run; raises `HistoryError` like `prepare`."""
        prepared = self.prepare(history, ModelSettings(independent=case.independent))
        return prepared.check(time_limit_s=time_limit_s, draw=False)[0]


# --- what comes after a run ------------------------------------------------------------------


class Reporter(Protocol):
    """Makes one artefact of a finished run, such as a page to look at.

    A class with `default = False` is used only where `--reporters` names it.
    """

    api_version: int
    name: str
    doc: str

    def write(self, folder: Path) -> Path:
        """Make the artefact from the run in `folder` and return where it is, inside the folder.

        Called after `run.json` is in place: whatever this raises becomes a note to the user and
        changes no verdict.
        """
        ...


class SoakExecutor(Protocol):
    """Runs the seeds of a soak somewhere else than in workers on this machine."""

    api_version: int
    name: str
    doc: str

    def run(
        self, job: bytes, seeds: Iterator[int], *, url: str, take: Callable[[bytes], bool]
    ) -> None:
        """Run `job` (a `harness.soak.SeedJob` as JSON) for each of `seeds`, in any order.

        Calls `take` with each `harness.soak.SeedResult` as JSON, as soon as it is known, and stops
        where it returns false. A job that names a lake has its runs there before that. Raises
        `UsageError` or `InfrastructureError`.
        """
        ...


class SoakSink(Protocol):
    """Keeps the runs of soaks elsewhere than in folders of a store."""

    api_version: int
    name: str
    doc: str

    def open(self, uri: str, *, name: str, prefix: str) -> SunkRuns:
        """The place at `uri`, for a soak whose runs are called `name/prefix...`.

        Raises `UsageError` where no run can be kept there, before any is made.
        """
        ...


class SunkRuns(Protocol):
    """The runs of one soak at the place of a `SoakSink`."""

    uri: str

    def holds(self, run: str, digest: str, verdict: str) -> bool:
        """Whether this very run is there."""
        ...

    def results(self, code: str) -> Iterator[bytes]:
        """The runs there that this code made, as `harness.soak.SeedResult` in JSON.

        What a result says and the place does not is left out with its run, which is made again.
        """
        ...

    def add(self, folder: Path) -> None:
        """Take a finished run. Its folder goes when the run is safe, now or at a later call.

        Raises `InfrastructureError` where it cannot be: the folders stay, to be added again.
        """
        ...

    def flush(self) -> None:
        """Have all that were added safe; raises as `add`, but only once."""
        ...

    def look(self) -> None:
        """Learn what others have put there meanwhile; raises `InfrastructureError`."""
        ...

    def place_of(self, run: str) -> str | None:
        """Where the files of a run lie; `None` where nothing but its rows is kept."""
        ...

    def fetch_words(self, run: str, store: str) -> list[str]:
        """The command that makes a folder of `store` of the run again."""
        ...


class Diagnosis(Protocol):
    """Looks for one thing that some of the harness can use and none of it needs (a Java, say)."""

    api_version: int
    name: str
    doc: str

    def look(self) -> tuple[bool, str]:
        """Whether it is there, and which it is or how to get it; for `harness doctor`."""
        ...


class Verb(Protocol):
    """A module that is a verb of the command line."""

    def main(self, arguments: Sequence[str]) -> int:
        """Run the verb with the arguments after its name, and return the exit code."""
        ...
