"""Records of long-lived clusters: one folder each, below this user's state folder.

    $XDG_STATE_HOME/catalog-harness/clusters/NAME/    (default: ~/.local/state/...)

| file           | holds                                                             |
|----------------|-------------------------------------------------------------------|
| `owner`        | its controller and machine: first the starter's, then the         |
|                | holder's                                                          |
| `order.json`   | the cluster to start (`Order`)                                    |
| `cluster.json` | the running cluster (`Standing`), once the system serves          |
| `failure.json` | why its holder ended (`Failure`), unless `harness down` ended it  |
| `door`         | the socket of its holder (`harness.up.control_socket`)                |
| `kept.json`    | marks `data/` as complete (`harness.up.kept_data`)                |
| `logs/`        | the output of its nodes; `holder.log` is next to it               |

A folder is created under another name and renamed, so only one of two starters of a name gets it.
The folder belongs to the user who started the cluster and is closed to others.
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

NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
FAULT_ID: Final = re.compile(r"f[1-9][0-9]{0,8}")
_HIDDEN: Final = "."
YOUNG_S: Final = 30.0
KEPT: Final = "kept.json"
T = TypeVar("T")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster to start. The case's workload is unused; its nemeses list possible faults."""

    environment: str
    case: Case
    run_id: str
    goes_on: int = 0  # how often the cluster went on from data that were kept
    data: str = ""  # where they are


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and where each of its declared ports is reached from outside."""

    name: str
    role: str
    addresses: dict[str, str]  # `m1:7051` -> `127.0.0.1:40123`
    pages: str = ""  # where people find them
    data: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that serves."""

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


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a holder ended, or refused a question."""

    error: str
    kind: str = ""  # the class of `harness.errors` that it was

    @classmethod
    def of(cls, error: HarnessError) -> Failure:
        """The failure for an error."""
        return cls(error=str(error), kind=type(error).__name__)

    def as_error(self) -> HarnessError:
        """The same, to be raised."""
        kinds = {each.__name__: each for each in (UsageError, TargetError)}
        return kinds.get(self.kind, InfrastructureError)(self.error)


class Place:
    """The folder of one cluster."""

    def __init__(self, folder: Path) -> None:
        """Nothing is read before it is asked for."""
        self.folder = folder
        self.name = folder.name
        self.log = folder / "holder.log"

    # --- whose it is -------------------------------------------------------------------------

    def own(self) -> None:
        """From now on it belongs to the process that calls."""
        self.write("owner", f"{this_controller()} {os.uname().nodename}".encode())

    def life(self) -> Life:
        """The life of its process, as far as it can be determined from here.

        The folder may be shared with containers and other machines.
        """
        return self._owner()[1]

    def owner(self) -> ProcessId | None:
        """The process it belongs to, if that lives and can be seen from here."""
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
        """Whether it was changed a moment ago, so that its owner may be about to sign."""
        with contextlib.suppress(OSError):
            return time.time() - self.folder.stat().st_mtime < YOUNG_S
        return False

    @property
    def saved(self) -> bool:
        """Whether all its data are here, to be kept: then it has ended, or is about to."""
        return (self.folder / KEPT).exists()

    def remove(self) -> None:
        """Remove the folder; it may be gone already."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- files -------------------------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the folder, whole or not at all; raises `InfrastructureError`."""
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
        """Say what to start."""
        self.write("order.json", msgspec.json.encode(order))

    def order(self) -> Order | None:
        """The order that it was started from; `None` if it is unreadable."""
        return self._read("order.json", Order)

    def write_standing(self, standing: Standing) -> None:
        """Say that it serves."""
        text = msgspec.json.format(msgspec.json.encode(standing), indent=1)
        self.write("cluster.json", text + b"\n")

    def standing(self) -> Standing | None:
        """The running cluster; `None` before it serves."""
        return self._read("cluster.json", Standing)

    def write_failure(self, failure: Failure) -> None:
        """Say why the holder ends; a folder that is gone needs no reason."""
        with contextlib.suppress(InfrastructureError):
            self.write("failure.json", msgspec.json.encode(failure))

    def failure(self) -> Failure | None:
        """The reason why the holder ended, if it recorded one."""
        return self._read("failure.json", Failure)

    def why_unseen(self) -> str:
        """The reason to leave a cluster of unknown life alone, and the way out."""
        return (
            f"whether the cluster {self.name!r} runs cannot be determined: its holder is in "
            f"another PID namespace or on another machine, or {self.folder / 'owner'} is damaged; "
            f"run the command where it was started, or remove {self.folder} if it is gone"
        )

    def why_gone(self) -> InfrastructureError:
        """The error of a command that needs a holder that is dead."""
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
    """This user's, for what outlives a command."""
    below = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(below).absolute() / "catalog-harness"


def _root() -> Path:
    return state_folder() / "clusters"


def check_name(name: str) -> None:
    """Raise `UsageError` for what cannot be the name of a cluster."""
    if not NAME.fullmatch(name) or is_fault_id(name):
        raise UsageError(
            f"the name {name!r} of a cluster must have 1 to 32 small letters, digits and inner "
            "hyphens, such as `dev-2`, and not look like the id of a fault, such as `f1`"
        )


def is_fault_id(word: str) -> bool:
    """Whether it is the id of a fault, which no cluster is named like."""
    return FAULT_ID.fullmatch(word) is not None


def claim(name: str) -> Place:
    """Make the folder of a new cluster; raises `UsageError` where there is one of this name."""
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
                f"cannot make {place.folder}: {error}; make room there, or name another folder "
                "with XDG_STATE_HOME"
            ) from error
        if place.life() is Life.UNKNOWN:
            raise UsageError(f"{place.why_unseen()}; or give another name with --name") from None
        state = "is running already" if place.owner() else "is dead, but not wholly removed"
        raise UsageError(
            f"a cluster named {name!r} {state}; `harness down {name}` removes it, and --name gives "
            "another name"
        ) from None
    return place


def places(*, hidden: bool = False) -> Iterator[Place]:
    """All clusters of this user by name, also dead ones; with `hidden` those half made, too."""
    root = _root()
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        place = Place(folder)
        half_made = folder.name.startswith(_HIDDEN) and hidden and not place.young
        if folder.is_dir() and (half_made or NAME.fullmatch(folder.name)):
            yield place


def find_place(name: str | None) -> Place:
    """The cluster of this name, or the only one there is; raises `UsageError`."""
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
