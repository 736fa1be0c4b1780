"""Nodes of `[nodes]` whose command is a Python program: `python:MODULE:CALLABLE`."""

from __future__ import annotations

import os  # determinism: no node runs this module

from harness.cluster import NodeSpec
from harness.errors import UsageError
from harness.nodes.program import program_of
from targets.declared.file import Declared

__all__ = ["import_path"]


def import_path(
    declared: Declared, key: str, place: str, path: str, environment: str | None
) -> dict[str, str]:
    """Check the Python program in `key`; return the environment variable that makes it importable.

    The folders of `path` are relative to the declaration's folder. Raises `UsageError`.
    """
    try:
        program_of(NodeSpec(name=key, role="", ports=(), command=(place,)))
    except UsageError as error:
        raise declared.error(key, f"is malformed: {error}") from error
    if environment == "docker":
        raise declared.error(
            key,
            f"runs {place!r}, which the simulation and processes run; use --env sim or --env "
            "process, or write a command line and an `image` for Docker",
        )
    folders = filter(None, path.split(os.pathsep))
    return {"PYTHONPATH": os.pathsep.join(str(declared.folder.at(each)) for each in folders)}
