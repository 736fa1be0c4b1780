"""Records of long-lived clusters: one folder each, below this user's state folder.

    $XDG_STATE_HOME/catalog-harness/clusters/NAME/    (default: ~/.local/state/...)

| file           | holds                                                              |
|----------------|--------------------------------------------------------------------|
| `owner`        | the process that owns the folder, and its machine: first the       |
|                | process that starts the cluster, then the holder                   |
| `order.json`   | the cluster to start (`Order`)                                     |
| `cluster.json` | the running cluster (`Standing`), once the system serves           |
| `over`         | marks a run whose phases are over: its holder waits for a decision |
| `ended.json`   | the end of a run (`Ended`)                                         |
| `failure.json` | why the holder ended (`Failure`), unless `harness down` ended it   |
| `door`         | the socket of its holder (`harness.up.control_socket`)             |
| `kept.json`    | marks `data/` as complete (`harness.up.kept_data`)                 |
| `logs/`        | the output of its nodes; `holder.log` is next to it                |

The *holder* is the process that keeps a cluster running (`harness.up.holder`).

A folder is created under another name and renamed, so only one of two starters gets the name. The
folder belongs to the user who started the cluster, and other users have no access.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from harness.case import Case
from harness.environments.controller import Controller, Life, life, this_controller
from harness.environments.procfs import ProcessId
from harness.errors import HarnessError, InfrastructureError, TargetError, UsageError
from harness.run.freeze import Frozen

NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
FAULT_ID: Final = re.compile(r"f[1-9][0-9]{0,8}")
_HIDDEN: Final = "."
YOUNG_S: Final = 30.0
KEPT: Final = "kept.json"
_OVER: Final = "over"
T = TypeVar("T")


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A run to conduct on the cluster. Its `folder` already exists."""

    folder: str
    link_proxy: str | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster to start.

    Without a `run`, the case's workload is unused, and users inject the faults of its nemeses by
    hand.
    """

    environment: str
    case: Case
    run_id: str
    goes_on: int = 0  # how often the cluster was continued from kept data
    data: str = ""  # the folder of the kept data
    run: RunOrder | None = None  # the run to conduct; its cluster is kept only if the run freezes


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and the address of each declared port for programs outside the cluster."""

    name: str
    role: str
    addresses: dict[str, str]  # e.g. `m1:7051`: `127.0.0.1:40123`
    pages: str = ""  # the URL of the node's web pages
    data: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `cluster.json`: a cluster that serves clients."""

    name: str
    environment: str
    target: str
    profile: str
    bugs: tuple[str, ...]
    seed: int
    run_id: str
    holder: str  # PID:TICKS, see `procfs.ProcessId`
    started: str
    folder: str
    nodes: tuple[NodeRow, ...]
    tools: tuple[str, ...] = ()  # commands of the target's own tool
    frozen: str = ""  # the folder of a frozen run, with the logs of the nodes
    pause: str = ""  # the fault that paused the nodes of a frozen run


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run that a holder conducted. `frozen` is set if the run's cluster stays."""

    interrupted: bool
    stop_asked: bool
    wall_ns: int
    frozen: Frozen | None = None


_KINDS: Final = (UsageError, TargetError)
"""The classes of errors that one process can pass to another."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a holder ended or refused a question."""

    error: str
    kind: str = ""  # the error's class in `harness.errors`

    @classmethod
    def of(cls, error: HarnessError) -> Failure:
        kind = next((each for each in _KINDS if isinstance(error, each)), type(error))
        return cls(error=str(error), kind=kind.__name__)

    def as_error(self) -> HarnessError:
        kinds = {each.__name__: each for each in _KINDS}
        return kinds.get(self.kind, InfrastructureError)(self.error)


class Place:
    """The folder of one long-lived cluster, and the files in the folder."""

    def __init__(self, folder: Path) -> None:
        """Refer to the folder. Only the other methods read its files."""
        self.folder = folder
        self.name = folder.name
        self.log = folder / "holder.log"

    # --- the owner ---------------------------------------------------------------------------

    def own(self) -> None:
        """Record the calling process as the owner of the folder."""
        self.write("owner", f"{this_controller()} {os.uname().nodename}".encode())

    def life(self) -> Life:
        """Return whether the owner's process is alive, dead or of unknown state.

        The folder may be shared with containers and other machines, whose processes are invisible.
        """
        return self._owner()[1]

    def owner(self) -> ProcessId | None:
        """Return the owner's process if it is alive and visible to this process, else `None`."""
        process, life = self._owner()
        return process if life is Life.ALIVE else None

    def _owner(self) -> tuple[ProcessId | None, Life]:
        try:
            text, _, machine = (self.folder / "owner").read_text(encoding="utf-8").partition(" ")
            controller = Controller.parse(text)
        except FileNotFoundError:
            return None, Life.DEAD
        except (OSError, ValueError):
            return None, Life.UNKNOWN
        same = machine == os.uname().nodename
        return controller.process, life(controller, this_controller(), same_machine=same)

    @property
    def young(self) -> bool:
        """Whether the folder changed in the last `YOUNG_S`. Its owner may not be recorded yet."""
        with contextlib.suppress(OSError):
            return time.time() - self.folder.stat().st_mtime < YOUNG_S
        return False

    @property
    def saved(self) -> bool:
        """Whether the folder has all data to keep. Then the cluster has ended or is about to."""
        return (self.folder / KEPT).exists()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- files -------------------------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the folder atomically; raises `InfrastructureError` if that fails."""
        path = self.folder / name
        scratch = self.folder / f"{name}.new"
        try:
            scratch.write_bytes(data)
            scratch.replace(path)
        except OSError as error:
            raise InfrastructureError(f"cannot write {path}: {error.strerror}") from error

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.folder / name).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None

    def write_order(self, order: Order) -> None:
        self.write("order.json", msgspec.json.encode(order))

    def order(self) -> Order | None:
        """Return the order that started the cluster, or `None` if it cannot be read."""
        return self._read("order.json", Order)

    def write_standing(self, standing: Standing) -> None:
        text = msgspec.json.format(msgspec.json.encode(standing), indent=1)
        self.write("cluster.json", text + b"\n")

    def standing(self) -> Standing | None:
        """Return the record of the running cluster; `None` before the cluster serves."""
        return self._read("cluster.json", Standing)

    def write_failure(self, failure: Failure) -> None:
        """Record why the process that owns the cluster is exiting, unless the folder is gone."""
        with contextlib.suppress(InfrastructureError):
            self.write("failure.json", msgspec.json.encode(failure))

    def failure(self) -> Failure | None:
        """Return why the holder ended, if it recorded a reason."""
        return self._read("failure.json", Failure)

    def mark_over(self) -> None:
        """Record that the phases of the run are over."""
        self.write(_OVER, b"")

    @property
    def over(self) -> bool:
        """Whether the phases of the run are over."""
        return (self.folder / _OVER).exists()

    def write_ended(self, ended: Ended) -> None:
        self.write("ended.json", msgspec.json.encode(ended))

    def ended(self) -> Ended | None:
        """Return the end of the run; `None` while it goes on."""
        return self._read("ended.json", Ended)

    def why_unseen(self) -> str:
        """Return why a cluster of unknown state is left alone, and the fix."""
        return (
            f"whether the cluster {self.name!r} runs cannot be determined: its holder is in "
            f"another PID namespace or on another machine, or {self.folder / 'owner'} is damaged; "
            f"run the command where the cluster was started, or remove {self.folder} if the "
            "cluster is gone"
        )

    def why_gone(self) -> InfrastructureError:
        """Return the error for a command that needs this cluster's holder, now that it is dead."""
        failure = self.failure()
        if self.saved:
            return InfrastructureError(
                f"the cluster {self.name!r} has ended: its data were saved, and "
                f"`harness down {self.name}` keeps them"
            )
        reason = "its holder was killed" if failure is None else failure.error
        return InfrastructureError(
            f"the cluster {self.name!r} has ended: {reason}; its logs are in {self.folder}, "
            f"and `harness down {self.name}` removes its leftovers"
        )


def state_folder() -> Path:
    """Return this user's folder for data that outlive a command."""
    below = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(below).absolute() / "catalog-harness"


def _root() -> Path:
    return state_folder() / "clusters"


def check_name(name: str) -> None:
    """Raise `UsageError` if `name` cannot be the name of a cluster."""
    if not NAME.fullmatch(name) or is_fault_id(name):
        raise UsageError(
            f"the name {name!r} of a cluster must have 1 to 32 small letters, digits and inner "
            "hyphens, such as `dev-2`, and not look like the id of a fault, such as `f1`"
        )


def is_fault_id(word: str) -> bool:
    """Whether the text is the id of a fault. No cluster may have such a name."""
    return FAULT_ID.fullmatch(word) is not None


def claim(name: str) -> Place:
    """Create the folder of a new cluster; raises `UsageError` if the name is taken."""
    check_name(name)
    root = _root()
    place, scratch = Place(root / name), None
    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = Place(Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=root)))
        scratch.own()
        scratch.folder.rename(place.folder)
    except (OSError, InfrastructureError) as error:
        if scratch is not None:
            scratch.remove()
        if not place.folder.is_dir():
            raise InfrastructureError(
                f"cannot create {place.folder}: {error}; free some disk space, or name another "
                "folder with XDG_STATE_HOME"
            ) from error
        if place.life() is Life.UNKNOWN:
            raise UsageError(f"{place.why_unseen()}; or give another name with --name") from None
        state = "is running already" if place.owner() else "is dead, but not completely removed"
        raise UsageError(
            f"a cluster named {name!r} {state}; `harness down {name}` removes it, and --name gives "
            "another name"
        ) from None
    return place


def places(*, hidden: bool = False) -> Iterator[Place]:
    """Yield this user's clusters, dead or alive, sorted by name.

    With `hidden`, also yield folders that a killed command left incomplete.
    """
    root = _root()
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        place = Place(folder)
        half_made = folder.name.startswith(_HIDDEN) and hidden and not place.young
        if folder.is_dir() and (half_made or NAME.fullmatch(folder.name)):
            yield place


def find_place(name: str | None) -> Place:
    """Return the cluster with this name, or the only cluster if `name` is `None`.

    Raises `UsageError` if there is no such cluster, or more than one.
    """
    clusters = {place.name: place for place in places()}
    if name is None and len(clusters) == 1:
        return next(iter(clusters.values()))
    if name in clusters:
        return clusters[name]
    names = ", ".join(clusters)
    if name is None and clusters:
        raise UsageError(f"several clusters are running: {names}; name one of them")
    what = "no cluster is running" if name is None else f"no cluster is named {name!r}"
    fix = f"there are: {names}" if clusters else "`harness up` starts one"
    raise UsageError(f"{what}; {fix}")
