"""The lake of a plain store: `STORE/.lake`, brought up to date whenever the store is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from results.judging.problems import Problems
from results.lake.log.lake import Lake
from results.lake.transfer.ingest import Ingested, ingest

__all__ = ["LAKE_FOLDER", "StoreLake", "lake_of_store"]

LAKE_FOLDER: Final = ".lake"


class StoreLake(NamedTuple):
    """A store's lake, and the runs that it lacks."""

    uri: str
    """`STORE/.lake`, or a folder below the user's cache where the store cannot be written."""
    store: Path
    problems: Problems
    """Runs that are not in the lake, each with the reason."""


def lake_of_store(
    store: Path, *, progress: Callable[[Ingested], None] = lambda _: None
) -> StoreLake:
    """Bring the lake of a store up to date, and return it."""
    uri = str(store.resolve() / LAKE_FOLDER)
    lake = Lake.create_or_open(uri)
    _, problems = ingest(store, lake, None, unfinished=True, progress=progress)
    return StoreLake(uri, store, problems)
