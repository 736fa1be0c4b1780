"""Volumes of a run: where the data folder of a node lies, whichever container runs it.

A container is replaced when its node runs as another variant, since an engine changes neither the
command nor the image of one that it has made. Volumes carry the run's labels, as containers do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.environments.docker.engine import Engine, Found
from harness.errors import InfrastructureError

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["create_volume", "remove_volume", "volumes"]


_IN_MEMORY: Final[dict[str, Any]] = {"type": "tmpfs", "device": "tmpfs", "o": "mode=1777,size=64m"}


def create_volume(
    engine: Engine, name: str, labels: dict[str, str], *, in_memory: bool = False
) -> None:
    """Create a volume; one that is there already stays as it is.

    One in memory is as the engine makes `/dev/shm`, and empty when no container runs that has it.
    """

    def make(api: APIClient) -> Any:
        options: dict[str, Any] = _IN_MEMORY if in_memory else {}
        return api.create_volume(name, driver="local", driver_opts=options, labels=labels)

    engine.call(f"create the volume {name}", make)


def remove_volume(engine: Engine, name: str) -> bool:
    """Remove a volume that no container uses; false when it is gone already."""
    import docker.errors

    def make(api: APIClient) -> bool:
        try:
            api.remove_volume(name)
        except docker.errors.NotFound:
            return False
        return True

    return engine.call(f"remove the volume {name}", make)


def volumes(engine: Engine, *labels: str) -> list[Found]:
    """Volumes with all of these labels, each given as `name` or `name=value`."""

    def make(api: APIClient) -> dict[str, Any]:
        found: dict[str, Any] = api.volumes(filters={"label": list(labels)})
        return found

    rows = engine.call("list volumes", make).get("Volumes") or []
    try:
        return [Found(row["Name"], row["Name"], row.get("Labels") or {}) for row in rows]
    except (KeyError, TypeError) as error:
        raise InfrastructureError(f"docker: volumes come without names: {rows!r:.200}") from error
