"""Data of an ended cluster: `harness down --keep-data` keeps them, `harness up` uses them again.

    $XDG_STATE_HOME/catalog-harness/kept/NAME/        (next to `clusters`)

The folder NAME is the moved folder of the cluster, with `data/NODE` and `kept.json` (`Kept`). The
holder (the process that owns a cluster) writes `kept.json` last: without this file the data are
incomplete. A continued cluster works on a copy, so kept data stay until the next `harness down
--keep-data` of a cluster with that name replaces them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness import __version__
from harness.case import stream
from harness.cluster import NodeSpec
from harness.errors import InfrastructureError, UsageError
from harness.plugins import Environment
from harness.up.records import KEPT, Order, Place, state_folder

DATA: Final = "data"
_SEED_BITS: Final = 63


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `kept.json`: the cluster from which the kept data came, and the time."""

    order: Order
    version: str  # of the harness
    at: str
    nodes: dict[str, str]  # node: its role


def record(place: Place, order: Order, nodes: Sequence[NodeSpec], at: str) -> None:
    """Record that the folder contains all data of the cluster."""
    roles = {node.name: node.role for node in nodes}
    kept = Kept(order=order, version=__version__, at=at, nodes=roles)
    place.write(KEPT, msgspec.json.encode(kept))


def _kept_folder(name: str) -> Path:
    return state_folder() / "kept" / name


def keep(place: Place) -> Path | None:
    """Move the folder of an ended cluster to the kept data, and return the new folder.

    This replaces older kept data with the same name. If the cluster's data are incomplete, nothing
    is moved, and the result is `None`.
    """
    if not place.saved:
        return None
    kept = _kept_folder(place.name)
    kept.parent.mkdir(exist_ok=True)
    before = kept.with_name(f".{place.name}.replaced")
    try:
        shutil.rmtree(before, ignore_errors=True)
        if kept.exists():
            kept.rename(before)
        place.folder.rename(kept)
    except OSError as error:
        raise InfrastructureError(f"cannot move {place.folder} to {kept}: {error}") from error
    shutil.rmtree(before, ignore_errors=True)
    return kept


def find_kept(name: str) -> tuple[Path, Kept] | None:
    """Return the data kept under this name, or `None`; raises `UsageError` if unreadable."""
    folder = _kept_folder(name)
    if not folder.exists():
        return None
    try:
        return folder, msgspec.json.decode((folder / KEPT).read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{folder} cannot be read as kept data: {error}; remove it, or give --fresh to start "
            "without the data"
        ) from error


def refuse_other_nodes(
    folder: Path, kept: Kept, nodes: Sequence[NodeSpec], environment: Environment
) -> None:
    """Raise `UsageError` if these nodes cannot continue from the kept data."""
    foreign = [
        node.name
        for node in nodes
        if node.entry is None or node.setup or node.user or node.image or node.dockerfile
    ]
    roles = {node.name: node.role for node in nodes}
    lacking = [name for name in roles if not (folder / DATA / name).is_dir()]
    why = fix = ""
    if kept.version != __version__:
        why = f"harness {kept.version} wrote them, and this is harness {__version__}"
    elif foreign:
        why = (
            f"{', '.join(foreign)} are foreign programs, whose data hold addresses that are gone, "
            "or have an image, a user or a set-up of their own"
        )
    elif not environment.restores_data:
        why = f"the environment {environment.name!r} cannot restore data"
    elif roles != kept.nodes:
        why = (
            f"they belong to the nodes {', '.join(kept.nodes)}, but the cluster to start has the "
            f"nodes {', '.join(roles)}"
        )
        fix = "leave out the options that change the nodes, or "
    elif lacking:
        why = f"data of {', '.join(lacking)} are missing"
    if why:
        raise UsageError(
            f"the cluster cannot continue from the data in {folder}: {why}; {fix}give --fresh to "
            "start without the data"
        )


def seed_of(order: Order) -> int:
    """Return the seed of a deployment. It differs each time that a cluster continues.

    With an equal seed, nodes would draw ids that are already in their data.
    """
    seed = order.case.seed
    if order.goes_on == 0:
        return seed
    return stream(seed, f"goes-on/{order.goes_on}").getrandbits(_SEED_BITS)
