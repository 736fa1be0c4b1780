"""Detects other programs that interfere with a run's containers and network namespaces.

A node depends on its container, its keeper (the container that owns its network namespace), the
run's network, the rules and routes in the namespace, and its Toxiproxy. Clients with their own
links also depend on the relay. The target cannot stop, remove, pause or change any of them. So a
change that the harness did not make is recorded in the history (`host.watch`).

Each `look` makes one request that lists the containers with their states, addresses and ports. In
each namespace a program waits for the kernel to report changes (`netwatch`). If the engine runs on
this machine, /proc shows which processes in the containers are stopped. For a remote engine, an
occasional request lists the processes by ps(1) on the engine's host.

A keeper or relay that has ended cannot be replaced, since its namespace and the published ports are
lost. In this case the run ends with an error, even if another program started the container again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from harness.cluster import NodeState
from harness.environments import procfs
from harness.environments.docker.deploy import Blueprint
from harness.environments.docker.engine.answers import Found
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.engine.labels import RUN_LABEL, Part, container_name, network_name
from harness.environments.docker.network import netwatch
from harness.environments.host.watch import Interference, interference
from harness.errors import InfrastructureError

_PROGRAM: Final = Path(netwatch.__file__).read_text(encoding="utf-8")
_FIRST_S: Final = 20.0
_JOIN_S: Final = 10.0
_AGAIN_S: Final = 1.0
_ATTEMPTS_MAX: Final = 20
_CHANGES_SHOWN_MAX: Final = 3
_CHARACTERS_MAX: Final = 120
_NOT_YET: Final = "created"
# the processes of a remote engine are listed only in every fifth `look`
_LOOKS_PER_QUESTION: Final = 5

_log = logging.getLogger(__name__)


class _Said(msgspec.Struct):
    """One line of output of `netwatch`: the first state, or changes since then."""

    state: list[str] | None = None
    gone: list[str] = msgspec.field(default_factory=list)
    new: list[str] = msgspec.field(default_factory=list)


class NamespaceWatch:
    """Follows the changes in one network namespace, in a thread of its own."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container
        self._first: list[str] | None = None
        self._closing = threading.Event()
        self.began = threading.Event()
        self.changed: str | None = None  # a clause with the changes since the first state
        self.moved = False  # the container now has another namespace
        self._thread = threading.Thread(target=self._follow, name=f"watch-{container}", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        why = "it ended"
        for _ in range(_ATTEMPTS_MAX):
            command = ["python3", "-I", "-S", "-c", _PROGRAM]
            if self._first is not None:
                command.append(msgspec.json.encode(self._first).decode())
            try:
                attachment = self._engine.watch(self._container, command)
                try:
                    for line in attachment.lines():
                        why = self._take(line) or why
                finally:
                    attachment.close()
            except InfrastructureError as error:
                why = str(error)
            if self._closing.wait(_AGAIN_S):
                return
        if self._first is None:  # without a first state, there is nothing to compare with
            _log.warning("docker: the network of %s cannot be watched: %s", self._container, why)
        else:
            self.changed = f"has a network namespace that cannot be watched any more ({why})"
        self.began.set()

    def _take(self, line: bytes) -> str | None:
        try:
            report = msgspec.json.decode(line, type=_Said)
        except msgspec.DecodeError:
            return line.decode("utf-8", "replace")[:_CHARACTERS_MAX]
        if report.state is not None:
            self._first = report.state
        self.moved = any(text.startswith("namespace ") for text in report.new)
        changes = [f"{text!r:.{_CHARACTERS_MAX}} is gone" for text in report.gone]
        changes += [f"{text!r:.{_CHARACTERS_MAX}} is new" for text in report.new]
        more = len(changes) - _CHANGES_SHOWN_MAX
        listed = changes[:_CHANGES_SHOWN_MAX] + ([f"and {more} more"] if more > 0 else [])
        self.changed = f"had its network changed ({', '.join(listed)})" if listed else None
        self.began.set()
        return None

    def close(self) -> None:
        """Stop restarting `netwatch`. Call this before the container is removed."""
        self._closing.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread. It ends after `close`, once the container is gone."""
        self._thread.join(timeout_s)


class Watched(NamedTuple):
    """The state that a node should have while the harness does not change it."""

    node: str
    container: str
    wanted: NodeState
    pid: int | None  # the node's first process; `None` if the engine is remote


class Look(NamedTuple):
    """The interference that one `look` found, by node. The node "" means the relay."""

    nodes: Mapping[str, Interference | None]
    helpers: Mapping[str, Interference]
    ended: InfrastructureError | None  # raised because a keeper or the relay has ended


class _Helper(NamedTuple):
    """A keeper or the relay: a container that must run until the run ends."""

    node: str  # the node that needs this container
    task: str  # a clause, e.g. "keeps the network namespace of m1"


class Outsiders:
    """Watches a run for interference by other programs. All methods block."""

    def __init__(
        self, engine: Engine, blueprint: Blueprint, run_id: str, relay: str | None
    ) -> None:
        """`relay` is the name of the relay container, or `None` if the run has no relay."""
        self._engine = engine
        self._label = f"{RUN_LABEL}={run_id}"
        self._network = network_name(run_id)
        self._helpers = {
            place.keeper: _Helper(name, f"keeps the network namespace of {name}")
            for name, place in blueprint.places.items()
        }
        if relay is not None:
            self._helpers[relay] = _Helper("", "calls for clients")
        self._proxies = {
            container_name(run_id, name, Part.PROXY): name for name in blueprint.places
        }
        self._first: dict[str, Found] = {}
        self._pids: dict[str, int | None] = {}  # container id: pid of the container's first process
        self._watches: dict[str, NamespaceWatch] = {}
        self._looks = 0
        # container: stopped pid, as last seen on a remote engine
        self._elsewhere: dict[str, int | None] = {}

    def begin(self) -> None:
        """Start to watch all namespaces of the run; returns once each has a first state."""
        self._first = {row.name: row for row in self._engine.containers(self._label)}
        self._watches = {name: NamespaceWatch(self._engine, name) for name in self._helpers}
        for name, watch in self._watches.items():
            if not watch.began.wait(_FIRST_S):
                _log.warning("docker: the network namespace of %s is not watched yet", name)

    def look(self, watched: Iterable[Watched]) -> Look:
        """Look once for interference; `InfrastructureError` if the engine does not answer."""
        self._looks += 1
        rows = {row.name: row for row in self._engine.containers(self._label)}
        nodes = {
            each.node: self._of_node(each, rows[each.container].state)
            for each in watched
            if each.container in rows
        }
        helpers: dict[str, Interference] = {}
        ended: InfrastructureError | None = None
        for name, helper in self._helpers.items():
            what = self._end_of(name, rows.get(name))
            if what is not None:
                ended = InfrastructureError(
                    f"docker: {name}, which {helper.task}, {what}, and not by the harness"
                )
            else:
                what = self._trouble_of(rows[name])
            if what is not None:
                text = f"{name}, which {helper.task}, {what}, and not by the harness"
                helpers.setdefault(helper.node, Interference(text))
        for name, node in self._proxies.items():
            if (row := rows.get(name)) is not None and row.state != _NOT_YET:
                what = f"is {row.state}" if row.state != "running" else self._stopped_in(row)
                if what is not None:
                    text = f"{name}, the proxy of the streams of {node}, {what}"
                    helpers.setdefault(node, Interference(f"{text}, and not by the harness"))
        return Look(nodes, helpers, ended)

    def _end_of(self, name: str, row: Found | None) -> str | None:
        """Return a clause that says how a keeper or relay ended; `None` if it runs or is paused."""
        if row is None:
            return "was removed"
        if row.state not in {"running", "paused"}:
            return f"was ended (it is {row.state})"
        return "was started again" if self._watches[name].moved else None

    def _trouble_of(self, row: Found) -> str | None:
        """Return a clause that says how a keeper or relay was changed or paused, or `None`."""
        if row.state == "paused":
            return "was paused"
        first = self._first.get(row.name, row)
        if row.addresses != first.addresses:
            if self._network in first.addresses.keys() - row.addresses.keys():
                return "was disconnected from the network of the run"
            return f"got other addresses ({row.addresses} for {first.addresses})"
        if row.ports != first.ports:
            return "got other published ports"
        return self._watches[row.name].changed or self._stopped_in(row)

    def _stopped_in(self, row: Found) -> str | None:
        if row.id not in self._pids:
            state = self._engine.state(row.name)
            self._pids[row.id] = None if state is None else state.pid
        stopped = self._stopped(row.name, self._pids[row.id])
        return None if stopped is None else f"has a process (pid {stopped}) that was stopped"

    def _stopped(self, container: str, pid: int | None) -> int | None:
        """Return the pid of a stopped process in the container; `None` if none is stopped."""
        if pid is not None:
            return _stopped(pid)
        if self._looks % _LOOKS_PER_QUESTION == 1:
            self._elsewhere[container] = self._engine.stopped(container)
        return self._elsewhere.get(container)

    def _of_node(self, watched: Watched, state: str) -> Interference | None:
        """Return the interference with a node, if its container's state shows one."""
        node, wanted = watched.node, watched.wanted
        if wanted is NodeState.DOWN and state == "running":
            return Interference(f"{node} was started, and not by the harness", "kill")
        runs = wanted is NodeState.RUNNING and state == "running"
        stopped = runs and self._stopped(watched.container, watched.pid) is not None
        return interference(node, wanted=wanted, stopped=state == "paused" or stopped)

    def close(self) -> None:
        """Stop watching the namespaces. Call this before the containers are removed."""
        for watch in self._watches.values():
            watch.close()

    def join(self) -> None:
        """Wait for the threads of all watches. Call this after the containers are removed."""
        for watch in self._watches.values():
            watch.join(_JOIN_S)


def _stopped(pid: int) -> int | None:
    """Return the first stopped process among `pid` and its descendants, or `None`."""
    for member in procfs.family(pid):
        identity = procfs.identify(member)
        if identity is not None and procfs.state(identity) in procfs.STOPPED:
            return member
    return None
