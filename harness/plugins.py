"""What a plug-in is, and how it is found: protocols and the registry of entry points.

The groups are `harness.targets`, `.nemeses`, `.workloads`, `.checkers`, `.environments`, `.models`
(what foreign histories are checked against), `.reporters` (what a finished run leaves besides its
verdict), `.soak_executors` (where else a soak can run its seeds), `.diagnoses` (what `harness
doctor` looks for) and `.verbs` (of the command line; the only group whose values are modules). Any
other value is `module:Class` or `module:OBJECT`; its name is what the command line shows. Only the
chosen plug-in is imported. The built-in ones register in the same way; `harness` imports none.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import os
import random
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from harness.case import Case, Fault
from harness.cluster import Bite, Capability, Cluster, Fidelity, NodeSpec
from harness.env import ClientEnv
from harness.errors import UsageError
from harness.faults.kinds import FaultKind
from harness.ops import (
    Attempt,
    CheckResult,
    Counterexample,
    History,
    ModelSettings,
    Op,
    OpType,
)
from harness.options import Option

if TYPE_CHECKING:
    from harness.generator import Generator

__all__ = [
    "API_VERSION",
    "GROUPS",
    "Checker",
    "Client",
    "Completion",
    "Convergence",
    "DeploymentPlan",
    "Diagnosis",
    "Environment",
    "HistoryModel",
    "Injection",
    "Nemesis",
    "NodeRole",
    "Option",
    "PreparedCheck",
    "Reporter",
    "Request",
    "Roles",
    "Session",
    "SoakExecutor",
    "Target",
    "TargetSettings",
    "Verb",
    "Workload",
    "load_plugin",
    "load_verb",
    "plugin_names",
]

API_VERSION: Final = 1
GROUPS: Final = (
    "targets",
    "nemeses",
    "workloads",
    "checkers",
    "environments",
    "models",
    "reporters",
    "soak_executors",
    "diagnoses",
)
"""Groups of plug-in objects; the values of `harness.verbs` are modules, see `load_verb`."""
T = TypeVar("T")


# --- targets ---------------------------------------------------------------------------------


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a target is to be set up; `options` has a value for each of its `Option`s."""

    profile: str
    bugs: tuple[str, ...]
    options: dict[str, Any]


class NodeRole(msgspec.Struct, frozen=True):
    """What one node says it is. `ready` is false for a leader that does not serve yet."""

    role: str  # "leader", "follower", ... in the target's words
    term: int = 0
    ready: bool = True


class Roles(msgspec.Struct, frozen=True):
    """The roles of the nodes that answered, at one moment."""

    by_node: dict[str, NodeRole]
    candidates: tuple[str, ...]  # all nodes that can lead, in declaration order

    @property
    def leader(self) -> str | None:
        """The node that claims to lead in the highest term, or nobody."""
        leaders = [(r.term, name) for name, r in self.by_node.items() if r.role == "leader"]
        return max(leaders)[1] if leaders else None


class Convergence(msgspec.Struct, frozen=True):
    """Whether the target came to rest; `pending` says in words what is still open.

    `at` may say of which state, by fields of answers (term, revision); a snapshot may have both.
    Where that is of another state, final reads and snapshot are repeated (`harness.run`).
    """

    ok: bool
    pending: tuple[str, ...] = ()
    at: dict[str, Any] | None = None


class Completion(msgspec.Struct, frozen=True):
    """How one operation ended, classified by the client; `value` is plain JSON."""

    type: OpType
    value: Any = None
    error: str | None = None
    node: str | None = None
    attempts: tuple[Attempt, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """One operation to invoke. `f` is in the workload's vocabulary."""

    f: str
    value: Any = None


class Client(Protocol):
    """One client process. It never retries a mutation silently and classifies every outcome."""

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Do one operation within `timeout_s`; a lost mutation is `info`, a lost read `fail`.

        Attempt times are the env clock's `monotonic_ns`.
        """
        ...

    async def close(self) -> None:
        """Drop all connections."""
        ...


class Target(Protocol):
    """A system under test: its nodes, its client, and how to look into it.

    An optional `nemeses`, names in order, says what `--nemesis any` draws from: those that make
    sense here. Without it, any installed nemesis that `suits_all` is drawn.

    Optional: `checkers`, names of checkers of what only this target promises (such as `bounds`),
    beside those of the workload; and, also of workloads, `draw_options(rng, given) -> dict`, what
    one seed of a soak runs with: the options in `given` as they are, and drawn ones beside them.
    """

    api_version: int
    name: str
    doc: str
    vocabularies: frozenset[str]
    profiles: tuple[str, ...]
    bugs: Mapping[str, str]  # switch -> one line
    options: tuple[Option, ...]

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare the nodes; raises `UsageError` for impossible settings."""
        ...

    def client(self, env: ClientEnv, settings: TargetSettings, process: int) -> Client:
        """A new client for one process."""
        ...

    def quorum_core(self, settings: TargetSettings, rng: random.Random) -> Sequence[str]:
        """A smallest set of nodes that must serve on its own, drawn at random."""
        ...

    async def ready(self, env: ClientEnv, settings: TargetSettings) -> Convergence:
        """Whether the target serves its clients now."""
        ...

    async def roles(self, env: ClientEnv, settings: TargetSettings) -> Roles:
        """Ask every node that can lead what it is; silent nodes are left out."""
        ...

    async def converged(self, env: ClientEnv, settings: TargetSettings) -> Convergence:
        """Whether all nodes agree and nothing is under way."""
        ...

    async def snapshot(self, env: ClientEnv, settings: TargetSettings) -> dict[str, Any]:
        """Every node's state as plain JSON, for invariant checks."""
        ...


# --- workloads, nemeses, checkers ------------------------------------------------------------


class Workload(Protocol):
    """What clients ask for, in one vocabulary that targets speak."""

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


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """What a nemesis really did; no targets means that it missed (nobody led, say).

    `what` goes into the history; `bite` is what it did for good, if nothing is left to undo.
    """

    targets: tuple[str, ...]
    note: str
    fault_ids: tuple[str, ...] = ()
    what: FaultKind | None = None
    bite: Bite | None = None


class Nemesis(Protocol):
    """One way to break a cluster, aimed by role at the moment of the fault.

    Most are faults in words (`harness.faults.aimed.AimedNemesis`). Some attributes are optional.
    With methods `check_args(args)` and `check_nodes(specs)`, which raise `UsageError`, faults that
    were written by hand are refused before anything starts. `kind` says what sort of fault it is,
    in the history and in reports: "cut", "kill", "power-cut", "pause", or a word of your own
    (default: "other"; an injection with `what` says it itself). `needs_leader` is false for a
    nemesis that does not aim at the leader (default: true); `needs_leader_for(fault)` says it of
    one fault. `suits_all` is false for one that only some targets name in `nemeses`.
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

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Break something now."""
        ...

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        """Undo it, and say what it did."""
        ...


class Checker(Protocol):
    """A pure function of a history.

    Reports look for three more things, all optional: `CHECKER_VERSION`, whose change makes them
    judge again (without it, any change of the checker's package, or of the bundled checkers, does);
    `bounded(steps=..., configurations=...)`, the same checker with other bounds of its search; and
    `check_columns(columns, case)`, which judges the keys of a keyed history from columns (see
    `results.columns.Columns`) and returns, by key, `valid` for those it proved, their `reasons` and
    `configurations`; the others are then given to `check`, one by one. A result that a larger
    budget could decide says so by a true `limited` in its details.
    """

    api_version: int
    name: str
    doc: str

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge; `unknown` with the reason where a bound is hit."""
        ...


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


class HistoryModel(Protocol):
    """What a history is checked against, by the name that `--model` or `--elle` takes.

    `kind` is "model" or "elle". The model reads ops in its own vocabulary of `f` and values.
    """

    api_version: int
    name: str
    doc: str
    kind: str

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        """Understand all ops, executing nothing.

        Raises `HistoryError` whose text begins with `op N` for what is not in the vocabulary, and
        `UsageError` for settings that mean nothing to this model.
        """
        ...


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
        where it returns false. Raises `UsageError` or `InfrastructureError`.
        """
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


# --- environments ----------------------------------------------------------------------------


class DeploymentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment is asked to deploy."""

    run_id: str
    nodes: tuple[NodeSpec, ...]
    seed: int
    knobs: dict[str, Any]
    folder: Path | None  # for node logs; None keeps nothing
    link_proxy: str | None = None  # URL of a Toxiproxy server to use instead of our own
    clients: int = 1  # how many there are at once


class Session(Protocol):
    """A deployment while it lasts, on its running event loop."""

    @property
    def cluster(self) -> Cluster:
        """The nemesis's door."""
        ...

    @property
    def env(self) -> ClientEnv:
        """The clients' door; also the driver's clock and randomness."""
        ...

    @property
    def interrupted(self) -> asyncio.Event:
        """Set by the first Ctrl-C; the second cancels the run."""
        ...


class Environment(Protocol):
    """A world that deploys nodes and breaks them.

    Optional: `draw_knobs(rng)`, the knobs of a seed that draws its own world (`Case.draw`), and
    `prepare_nodes(nodes, progress)`, as `prepare`, of what these nodes need: their images, say.
    """

    api_version: int
    name: str
    doc: str
    capabilities: Mapping[Capability, Fidelity]

    def unavailable(self) -> str | None:
        """Why it cannot be used here, with the fix; `None` if it can."""
        ...

    def prepare(self, progress: Callable[[str], None]) -> None:
        """Make what can be made here and is missing, such as an image, if anything, and tell
        `progress` of it. Raises `InfrastructureError`.
        """
        ...

    def check_knobs(self, knobs: Mapping[str, Any]) -> None:
        """Raise `UsageError` for knobs that mean nothing here; called before anything starts."""
        ...

    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Deploy with all nodes started, run `main` on the world's loop, and tear down.

        Whatever `main` returned survives a failing teardown, which is logged as a warning and
        left to `clean`. Raises `InfrastructureError` when the nodes cannot be deployed.
        """
        ...

    def clean(self) -> list[str]:
        """Remove what dead runs left behind; returns a line for each thing removed."""
        ...


# --- registry --------------------------------------------------------------------------------


def _entry_points(group: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    return _read_entry_points(group, os.environ.get("HARNESS_NO_PLUGINS") == "1", _search_path())


def _search_path() -> tuple[tuple[str, int, int], ...]:
    """Where packages are looked for, as (place, inode, time of the last change in ns)."""
    found = []
    for place in sys.path:
        try:
            about = Path(place).stat()
        except OSError:
            continue  # nothing can be installed there
        found.append((place, about.st_ino, about.st_mtime_ns))
    return tuple(found)


@functools.lru_cache(maxsize=64)  # reading them takes milliseconds, and a run asks thirty times
def _read_entry_points(
    group: str, only_builtin: bool, _: tuple[tuple[str, int, int], ...]
) -> Mapping[str, importlib.metadata.EntryPoint]:
    found: dict[str, importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=f"harness.{group}"):
        owner = point.dist.name if point.dist is not None else "?"
        if only_builtin and owner != "catalog-harness":
            continue
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            first = other.dist.name if other.dist is not None else "?"
            raise UsageError(
                f"two plug-ins in harness.{group} are named {point.name!r}: {other.value} "
                f"(from {first}) and {point.value} (from {owner}); uninstall or rename one"
            )
        found[point.name] = point
    return dict(sorted(found.items()))


def plugin_names(group: str) -> list[str]:
    """The names in one of `GROUPS`, sorted, without importing any plug-in."""
    return list(_entry_points(group))


def load_plugin(group: str, name: str) -> Any:
    """Import and instantiate one plug-in.

    Raises `UsageError` when the name is unknown (it lists those that exist) or the plug-in is
    broken or written for another `API_VERSION`.
    """
    points = _entry_points(group)
    if name not in points:
        known = ", ".join(points) or "none installed"
        raise UsageError(f"{name!r} is not among the {group}: {known}")
    try:
        found = points[name].load()
        plugin = found() if callable(found) else found
    except (Exception, SystemExit) as error:  # a script that exits when it is imported
        raise UsageError(
            f"the plug-in {name!r} of {group} ({points[name].value}) does not load: {error!r}; "
            "fix it or uninstall its package (HARNESS_NO_PLUGINS=1 disables third-party plug-ins)"
        ) from error
    version = getattr(plugin, "api_version", None)
    if version != API_VERSION:
        raise UsageError(
            f"the plug-in {name!r} of {group} has api_version {version}; "
            f"this harness speaks {API_VERSION}"
        )
    missing = _missing(plugin, group)
    if missing:
        raise UsageError(
            f"the plug-in {name!r} of {group} ({points[name].value}) lacks {', '.join(missing)}; "
            "see the protocol in harness.plugins"
        )
    return plugin


def load_verb(name: str) -> Verb:
    """Import the module of a verb that a package brings; raises `UsageError` as `load_plugin`."""
    points = _entry_points("verbs")
    if name not in points:
        known = ", ".join(points) or "none installed"
        raise UsageError(f"{name!r} is not among the verbs of installed packages: {known}")
    try:
        verb = points[name].load()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"the verb {name!r} ({points[name].value}) does not load: {error!r}; fix it or "
            "uninstall its package"
        ) from error
    if not callable(getattr(verb, "main", None)):
        raise UsageError(f"the verb {name!r} ({points[name].value}) has no main(arguments)")
    return verb  # type: ignore[no-any-return]


def _missing(plugin: Any, group: str) -> list[str]:
    """What the protocol of the group demands and the plug-in does not have."""
    protocols: dict[str, type] = {
        "targets": Target,
        "nemeses": Nemesis,
        "workloads": Workload,
        "checkers": Checker,
        "environments": Environment,
        "models": HistoryModel,
        "reporters": Reporter,
        "soak_executors": SoakExecutor,
        "diagnoses": Diagnosis,
    }
    protocol = protocols.get(group)
    if protocol is None:
        return []
    members = [*protocol.__annotations__, *vars(protocol)]
    return [name for name in members if not name.startswith("_") and not hasattr(plugin, name)]
