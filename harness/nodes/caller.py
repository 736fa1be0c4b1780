"""The calling client, for link faults that affect only some clients.

A target makes its own clients, all on one env (`harness.plugins.Deployment.env`), and they connect
at any time. So the caller cannot be an argument. Instead, the driver of a client sets the client's
number once in its task, and tasks started from there inherit it (PEP 567). A connection belongs to
the client that opened it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from harness.cluster import CLIENT, client_end

_CALLER: Final = ContextVar("caller", default=CLIENT)


def call_as(number: int) -> None:
    """From now on, let this task connect as the client of this number."""
    _CALLER.set(client_end(number))


def calling_end() -> str:
    """The link end that this task uses; `CLIENT` by default."""
    return _CALLER.get()
