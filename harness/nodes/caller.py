"""Tracks which client is calling, for link faults that affect only some clients.

A target makes its own clients, all with the same env (`harness.plugins.Deployment.env`), and they
may connect at any time, so no argument can name the caller. Instead, the client's number is set
once in the client's task, and tasks that this task starts inherit the number (PEP 567). A
connection belongs to the client that opened it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from harness.cluster import CLIENT, client_end

_CALLER: Final = ContextVar("caller", default=CLIENT)


def call_as(number: int) -> None:
    """Make the current task, and tasks that it starts, connect as the client `number`."""
    _CALLER.set(client_end(number))


def calling_end() -> str:
    """Return the link end of the client that runs the current task; by default `CLIENT`."""
    return _CALLER.get()
