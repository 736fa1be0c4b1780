"""The system under test: a target, its deployment, its clients and its tool."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, TypedDict, Unpack

import msgspec

from harness.cluster import CLIENT, NodeSpec
from harness.env import ClientEnv
from harness.errors import HarnessError, StartError, UsageError
from harness.ops import Completion, Request
from harness.permits import Permit
from harness.plugins._base import Plugin, set_traits
from harness.plugins._exam import BugSwitch
from harness.plugins._twins import KnownDifference
from harness.plugins.options import Option


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a target. `options` has a value for each of its `Option`s.

    `environment` is the name of the environment, if it is known: a target may use different
    programs in simulation and in processes. `vocabulary` is that of the run's workload; `None`
    without a workload (`harness up`).
    """

    profile: str
    bugs: tuple[str, ...]
    options: dict[str, Any]
    environment: str | None = None
    vocabulary: str | None = None


Ask = Callable[[str, str], str]
"""A function that asks the user a question; returns the answer, or else the default."""


class Draft(msgspec.Struct, frozen=True):
    """The text of a file that declares a system, and where its values come from.

    `seen` are facts and `assumed` are defaults, both in words. Runs of the system need the `extras`
    of the harness's distribution.
    """

    text: str
    seen: tuple[str, ...]
    assumed: tuple[str, ...]
    extras: tuple[str, ...]


class NodeRole(msgspec.Struct, frozen=True):
    """The role that a node reports. A leader that does not serve clients yet is not `ready`."""

    role: str  # in the target's words: "leader", "follower", ...
    term: int = 0
    ready: bool = True


class Roles(msgspec.Struct, frozen=True):
    """The roles of the nodes that answered, at one moment."""

    by_node: dict[str, NodeRole]
    candidates: tuple[str, ...]  # all nodes that can lead, in the order of declaration

    @property
    def leader(self) -> str | None:
        """The node that claims to lead in the highest term, or `None`."""
        leaders = [(r.term, name) for name, r in self.by_node.items() if r.role == "leader"]
        return max(leaders)[1] if leaders else None


class Scene(msgspec.Struct, frozen=True):
    """The state of the cluster when a fault begins. `draw` seeds the random choices."""

    specs: Mapping[str, NodeSpec]
    groups: Mapping[str, Roles]  # a fault without a group means the first group
    clients: Sequence[str] = (CLIENT,)  # the link ends of clients (`Cluster.clients`)
    it: str = ""  # the node whose event the fault waited for
    draw: int = 0

    def roles(self, group: str = "") -> Roles:
        """Return the roles in `group`; if there is no such group, the roles in the first one."""
        names = [group] if group in self.groups else list(self.groups)[:1]
        return self.groups[names[0]] if names else Roles({}, ())

    def members(self, group: str = "") -> list[str]:
        """Return the nodes that can lead in this group, in the order of declaration."""
        candidates = self.roles(group).candidates
        return [name for name in self.specs if name in candidates]


class Convergence(msgspec.Struct, frozen=True):
    """Whether the target has settled (`ok`). `pending` lists the open conditions in words.

    `at` may identify the settled state by fields of answers (term, revision). If a snapshot has
    another state, final reads and snapshot are repeated (`harness.run.phases`).
    """

    ok: bool
    pending: tuple[str, ...] = ()
    at: dict[str, Any] | None = None


class Client(Protocol):
    """One client process. It never retries a mutation silently, and classifies every outcome."""

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Do one operation within `timeout_s`.

        Without an answer, a mutation is `info` and a read is `fail`. The times of attempts are
        `monotonic_ns` of the env's clock.
        """
        ...

    async def close(self) -> None: ...


_CLIENT: Final = "client"


def _client_option(clients: Mapping[str, str]) -> Option:
    listed = "; ".join(f"{name}: {doc}" for name, doc in clients.items())
    return Option(_CLIENT, next(iter(clients)), f"the client, {listed}", among=tuple(clients))


class TargetTraits(TypedDict, total=False):
    """Optional data of a target, for its class header."""

    workload: str | None
    usual: Mapping[str, Any]
    nemeses: tuple[str, ...] | None
    extras: tuple[str, ...]
    workloads: tuple[str, ...]
    points: Mapping[str, tuple[str, ...]]
    checkers: tuple[str, ...]
    groups: tuple[str, ...]
    operations: tuple[str, ...]
    variant_of: Mapping[str, str]
    larger: tuple[Mapping[str, Any], ...]
    tools: tuple[str, ...]
    state_pages: tuple[str, ...]
    clients: Mapping[str, str]
    original: str | None


class Target(Plugin):
    """A system under test: its nodes, its clients, and how to inspect it."""

    vocabularies: frozenset[str]
    profiles: tuple[str, ...]
    bugs: Mapping[str, str]  # bug switch: one line that describes it
    options: tuple[Option, ...]

    workload: str | None = None
    """The workload that the target runs if the user names none."""
    usual: Mapping[str, Any] = MappingProxyType({})
    """The target's defaults for other fields of the case, such as {"profile": "hive4"}."""
    nemeses: tuple[str, ...] | None = None
    """The nemeses that `--nemesis any` draws from. By default, all installed nemeses that suit all
    targets."""
    extras: tuple[str, ...] = ()
    """Extra nemeses. A seed of `--nemesis any` draws at most one of them, together with `nemeses`
    or alone. A repeated name is drawn more often."""
    workloads: tuple[str, ...] = ()
    """Workloads from which a soak draws for each seed, unless the user chooses a workload. A
    repeated name is drawn more often. Without names, all seeds have the same workload."""
    points: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The points of the target's code at which the nemesis `at-points` injects faults, in named
    groups. Points of a group occur together, as in an election. A point is written as the kind of a
    point or event (`Env.point`, `Env.event`), perhaps with fields: `voted group=master`."""
    checkers: tuple[str, ...] = ()
    """Checkers for promises that only this target makes (such as `bounds`). They are added to the
    workload's."""
    groups: tuple[str, ...] = ()
    """The replica groups that fault selectors may name."""
    operations: tuple[str, ...] = ()
    """The operations of an administrator (`System.operations` and `System.restarting`)."""
    variant_of: Mapping[str, str] = MappingProxyType({})
    """Map each operation that restarts nodes as a variant to the name of this variant."""
    larger: tuple[Mapping[str, Any], ...] = ()
    """Options that add roles or spare nodes. Error messages suggest them for nemeses that need such
    nodes."""
    tools: tuple[str, ...] = ()
    """Commands that `harness up` prints, with the cluster's name in place of `CLUSTER`."""
    state_pages: tuple[str, ...] = ("/",)
    """The paths of pages that together show a node's state as JSON, for `harness replay`. Nodes may
    lack some of the pages. A page must answer without a wait."""
    clients: Mapping[str, str] = MappingProxyType({})
    """The clients that the target offers, by name, each with a few words about it. The first is the
    usual one. The class then has the option `client`, which chooses one (`--client NAME`)."""
    original: str | None = None
    """The target of the system that this target re-creates. `harness twin` compares the two."""

    def __init_subclass__(cls, **traits: Unpack[TargetTraits]) -> None:
        set_traits(cls, TargetTraits, traits)
        if traits.get("clients"):
            others = [option for option in cls.options if option.name != _CLIENT]
            cls.options = (*others, _client_option(cls.clients))

    @abstractmethod
    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare the nodes; raises `UsageError` for impossible settings."""

    @abstractmethod
    def open(self, deployment: Deployment) -> System:
        """Return the system of a new deployment. It exists as long as the run."""

    def configured(self, options: Mapping[str, Any]) -> Target:
        """Return the target with these options; by default the target itself. Raises `UsageError`.

        For targets whose vocabularies, defaults or groups depend on an option.
        """
        del options
        return self

    def read_file(self, path: Path) -> dict[str, Any]:
        """Return target options with the content of the `--system` file, so a case needs no file.

        Raises `UsageError`.
        """
        raise UsageError(f"--system {path}: the target {self.name!r} is not declared by a file")

    def start_failure(self, settings: TargetSettings, error: StartError) -> HarnessError:
        """Return the error that the command reports if the target did not start.

        By default, this is `error` itself. A target that users declare returns a `UsageError` that
        quotes their file.
        """
        del settings
        return error

    def draft_file(self, compose: Path, ask: Ask, without: Sequence[str]) -> Draft:
        """Return a file for `--system` that declares the system of a Compose file.

        The services that `without` names are left out. Raises `UsageError`.
        """
        del ask, without
        raise UsageError(f"--compose {compose}: the target {self.name!r} is not declared by a file")

    def pointless(self, settings: TargetSettings) -> Collection[str]:
        """Return the names in `nemeses` and `extras` that have no effect with these settings.

        An example is a fault at an event that no node announces. `--nemesis any` does not draw
        them.
        """
        del settings
        return ()

    def permits(self, settings: TargetSettings) -> Sequence[Permit]:
        """Return the permits: promises that the profile does not make (`harness.permits`)."""
        del settings
        return ()

    def switches(self) -> Sequence[BugSwitch]:
        """Return the defects in `bugs`, each with a soak that finds it (`harness exam`).

        By default, a soak of the target without further options should find each of them.
        """
        return [BugSwitch(id=name, title=title) for name, title in self.bugs.items()]

    def known_differences(self) -> Sequence[KnownDifference]:
        """Return the differences from its originals that `harness twin` shows as explained."""
        return ()

    def message_name(self, frame: bytes) -> str:
        """Return the type of a frame in a few words, such as the name of its method.

        A frame goes between two nodes, or from or to a client.
        """
        return f"{len(frame)} bytes"

    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options for one seed of a soak: all options in `given`, and random ones."""
        del rng
        return dict(given)


class Deployment(msgspec.Struct, frozen=True):
    """The arguments of `Target.open`: an env for clients, the settings, and the nodes."""

    env: ClientEnv
    settings: TargetSettings
    nodes: Mapping[str, NodeSpec]


Operation = Callable[[Sequence[str]], Coroutine[Any, Any, str | None]]
"""A function that does an administrator's work on the given nodes.

It returns its effect in words, or `None` if it failed. It limits the time of each of its calls to
the system. The harness abandons the whole operation after a minute."""


Restart = Callable[[str, str], Coroutine[Any, Any, bool]]
"""A function that stops a node gracefully and starts it as a variant. The node keeps the variant.

It returns whether it restarted the node. It does nothing to a node that is down."""
RestartingOperation = Callable[[Sequence[str], Restart], Coroutine[Any, Any, str | None]]
"""An `Operation` that restarts nodes. Its name must be in `Target.operations`, too."""


class Said(msgspec.Struct, frozen=True):
    """The output of a tool, and its exit code."""

    text: str
    exit_code: int = 0
    error: str = ""


class System(ABC):
    """One deployment of a target, as the harness sees it. It may keep connections open."""

    @abstractmethod
    def client(self, process: int) -> Client:
        """Return a new client for one process."""

    @abstractmethod
    def core(self, rng: random.Random) -> Sequence[str]:
        """Draw a minimal set of nodes that must be able to serve without the other nodes."""

    @abstractmethod
    async def ready(self) -> Convergence:
        """Return whether the target serves its clients now."""

    @abstractmethod
    async def groups(self) -> Mapping[str, Roles]:
        """Return the roles in each group of replicas, the main group first.

        Asks every node that can lead, and leaves out silent nodes. The damage budget uses these
        groups.
        """

    @abstractmethod
    async def converged(self) -> Convergence:
        """Return whether all nodes agree and no change is under way."""

    async def snapshot(self) -> dict[str, Any]:
        """Return the state of every node as plain JSON, for checkers of invariants."""
        return {}

    def operations(self) -> Mapping[str, Operation]:
        """Return the operations of an administrator by name; `restarting` has the others."""
        return {}

    def restarting(self) -> Mapping[str, RestartingOperation]:
        """Return the operations that restart nodes as another variant."""
        return {}

    async def restore(self, restart: Restart) -> None:
        """Undo the changes of all operations; called when all nodes are healed."""
        del restart

    async def tool(self, arguments: Sequence[str]) -> Said:
        """Run the target's own command-line tool; raises `HarnessError`s like a verb."""
        del arguments
        raise UsageError("the target has no tool of its own")


def first_roles(groups: Mapping[str, Roles]) -> Roles:
    """Return the roles in the first group of a system, for the record of a run."""
    return next(iter(groups.values()), Roles({}, ()))
