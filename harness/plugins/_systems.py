"""What is put to the test: a target, its deployment, its clients and its tool."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from harness.cluster import CLIENT, NodeSpec
from harness.env import ClientEnv
from harness.ops import (
    Attempt,
    OpType,
)
from harness.plugins.options import Option
from harness.vocabularies import Call


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a target is to be set up; `options` has a value for each of its `Option`s.

    `environment` is where, as far as that is known yet: a target may be deployed with other
    programs in simulation than in processes.
    """

    profile: str
    bugs: tuple[str, ...]
    options: dict[str, Any]
    environment: str | None = None


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
    Where that is of another state, final reads and snapshot are repeated (`harness.run.phases`).
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

    An optional `workload` names what clients do where nobody says it; an optional `usual` has
    values of other fields of the case that are its defaults: {"profile": "hive4"}.

    Optional: `groups`, the names of its groups of replicas, which selectors of faults may choose
    among; `operations`, the names of what an administrator can do (`System`), and `variant_of`, as
    which variant some of them have nodes run, by their names; `checkers`, names of
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

    Optional: `operations`, what an administrator does to it, by name (see `Operation`);
    `restarting`, those that have nodes run as another variant (see `RestartingOperation`), and
    `restore(restart)`, which puts back what any of them changed, once all nodes are well; and
    `tool`, the target's own command-line tool (see `Tool`).
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


Restart = Callable[[str, str], Coroutine[Any, Any, bool]]
"""Stops a node in order and starts it as a variant, which it then stays; whether that was done.

One that somebody else took down is left alone.
"""
RestartingOperation = Callable[[Sequence[str], Restart], Coroutine[Any, Any, str | None]]
"""An `Operation` that restarts nodes; it is among the `operations` of the target all the same."""


class Said(msgspec.Struct, frozen=True):
    """What a tool prints, on stdout and on stderr, and its exit code."""

    text: str
    exit_code: int = 0
    error: str = ""


Tool = Callable[[Sequence[str]], Coroutine[Any, Any, Said]]
"""Does what the arguments of a command line ask for; raises `HarnessError`s as a verb would."""


def first_roles(groups: Mapping[str, Roles]) -> Roles:
    """The roles in the first of a system's groups: those that a run records."""
    return next(iter(groups.values()), Roles({}, ()))
