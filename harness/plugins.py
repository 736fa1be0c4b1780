"""What a plug-in is: the protocols of all groups (`harness.registry` finds them)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from harness.case import Case, Fault
from harness.cluster import CLIENT, Capability, Cluster, Fidelity, NodeSpec
from harness.env import ClientEnv
from harness.faults.kinds import Aim
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
from harness.vocabularies import Call

if TYPE_CHECKING:
    from harness.generator import Generator

__all__ = [
    "API_VERSION",
    "NEMESIS_API_VERSION",
    "TARGET_API_VERSION",
    "Checker",
    "Client",
    "Completion",
    "Convergence",
    "Deployment",
    "DeploymentPlan",
    "Diagnosis",
    "Environment",
    "HistoryModel",
    "Nemesis",
    "NodeRole",
    "Operation",
    "Option",
    "PreparedCheck",
    "Reporter",
    "Request",
    "Roles",
    "Said",
    "Scene",
    "Session",
    "SoakExecutor",
    "System",
    "Target",
    "TargetSettings",
    "Tool",
    "Verb",
    "Workload",
    "roles_of",
]

API_VERSION: Final = 1
NEMESIS_API_VERSION: Final = 2
TARGET_API_VERSION: Final = 2
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


class Scene(msgspec.Struct, frozen=True):
    """What is there at the moment of a fault, and the number that decides its draws."""

    specs: Mapping[str, NodeSpec]
    groups: Mapping[str, Roles]  # the first is meant where none is named
    clients: Sequence[str] = (CLIENT,)  # ends of links that are the harness's (`Cluster.clients`)
    it: str = ""  # the node of the event that the fault waited for
    draw: int = 0

    def roles(self, group: str = "") -> Roles:
        """Who has which role in this group, or in the first one."""
        names = [group] if group in self.groups else list(self.groups)[:1]
        return self.groups[names[0]] if names else Roles({}, ())

    def members(self, group: str = "") -> list[str]:
        """The nodes that can lead in it, in declaration order."""
        candidates = self.roles(group).candidates
        return [name for name in self.specs if name in candidates]


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

    @classmethod
    def of(cls, call: Call) -> Request:
        """What a vocabulary calls it."""
        return cls(call.f, call.asked())


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

    Optional: `groups`, the names of its groups of replicas, which selectors of faults may choose
    among; `operations`, the names of what an administrator can do (`System`); `checkers`, names of
    checkers of what only this target promises (such as `bounds`), beside those of the workload;
    `permits(settings) -> Sequence[Permit]`, what the profile does not promise (`harness.permits`);
    and, also of workloads, `draw_options(rng, given) -> dict`, what one seed of a soak runs with:
    the options in `given` as they are, and drawn ones beside them.
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

    def open(self, deployment: Deployment) -> System:
        """The system that was just deployed, for as long as the run lasts."""
        ...


class Deployment(msgspec.Struct, frozen=True):
    """What a target is opened with: the harness's own door, how it was set up, and its nodes."""

    env: ClientEnv
    settings: TargetSettings
    nodes: Mapping[str, NodeSpec]


class System(Protocol):
    """One deployment of a target, as the harness looks at it; may keep connections open.

    Optional: `operations`, what an administrator does to it, by name (see `Operation`), and `tool`,
    the target's own command-line tool (see `Tool`).
    """

    def client(self, process: int) -> Client:
        """A new client for one process."""
        ...

    def core(self, rng: random.Random) -> Sequence[str]:
        """A smallest set of nodes that must serve on its own now, drawn at random."""
        ...

    async def ready(self) -> Convergence:
        """Whether the target serves its clients now."""
        ...

    async def groups(self) -> Mapping[str, Roles]:
        """Who has which role in each group of replicas; the first is meant where none is named.

        Asks every node that can lead; silent nodes are left out. The damage budget counts by these
        groups.
        """
        ...

    async def converged(self) -> Convergence:
        """Whether all nodes agree and nothing is under way."""
        ...

    async def snapshot(self) -> dict[str, Any]:
        """Every node's state as plain JSON, for invariant checks."""
        ...


Operation = Callable[[Sequence[str]], Coroutine[Any, Any, str | None]]
"""What an administrator does to these nodes: says what it did, in words, or `None` if it could not.

Each call keeps to a time limit of its own, or is given up after a minute.
"""


class Said(msgspec.Struct, frozen=True):
    """What a tool prints, on stdout and on stderr, and its exit code."""

    text: str
    exit_code: int = 0
    error: str = ""


Tool = Callable[[Sequence[str]], Coroutine[Any, Any, Said]]
"""Does what the arguments of a command line ask for; raises `HarnessError`s as a verb would."""


async def roles_of(system: System) -> Roles:
    """The roles in the first group of a system: those that a run records."""
    return next(iter((await system.groups()).values()), Roles({}, ()))


# --- workloads, nemeses, checkers ------------------------------------------------------------


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

    Most are faults in words (`harness.faults.aimed.AimedNemesis`). Some attributes are optional.
    With methods `check_args(args)` and `check_target(specs, target)`, which raise `UsageError`,
    faults that were written by hand are refused before anything starts. `needs_leader` is false
    for a nemesis that does not aim at the leader (default: true); `needs_leader_for(fault)` says
    it of one fault, by a bool or the name of the group.
    `may_hit(specs, capabilities)` names those nodes to which it may do what needs any of these
    (default: all).
    `suits_all` is false for one that only some targets name in `nemeses`.
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
    ends: tuple[str, ...] = (CLIENT,)  # of links, for them; see `Cluster.clients`
    clocks: frozenset[str] = frozenset()  # foreign programs whose clocks the run may make wrong
    data: Path | None = None  # a folder a node, with which it starts (`Environment`)


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
    `prepare_nodes(nodes, progress)`, as `prepare`, of what these nodes need: their images, say;
    `reaches_foreign`, what of `ENV_NODES_ONLY` it can do to foreign programs as well, and what else
    it does to them less faithfully; `why_no_faulty_disks()`: what a disk of ours for foreign
    programs lacks here (as `unavailable`; without it no environment has one); `restores_data`,
    whether nodes of `Env` start on the data of `DeploymentPlan.data`.
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
