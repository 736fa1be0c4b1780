"""What DuckDB says of a lake's files that it cannot read, in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from harness.errors import InfrastructureError, clipped
from results.lake.judged import RESULTS
from results.lake.trouble import said_of
from results.rights import RefusedError

__all__ = ["readable"]


@contextlib.contextmanager
def readable(uri: str) -> Iterator[None]:
    """A file that DuckDB cannot read, or has no room for, leaves as `InfrastructureError`.

    One that we may not read leaves as `UsageError`.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        lost = isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException)
        text = " ".join(str(error).split())
        if isinstance(refused := said_of(error, uri), RefusedError):
            raise refused from error
        if not (lost or "reading the stream" in text):
            raise
        raise InfrastructureError(
            f"what the lake {uri} holds cannot be read: {clipped(text, 300)}; see `harness lake "
            f"check` (results may be removed as a whole: {uri}/{RESULTS}; they are found again)"
        ) from error
