"""Which of the harness's clients calls, where links of one may be cut and those of others not.

A target makes clients of its own, all on one door (`harness.plugins.Deployment.env`), and they
connect when they like. So nobody hands the caller down: whoever drives a client says once whose the
calls of its task are, and the tasks that are started from there inherit it (PEP 567). A connection
is the client's that opened it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from harness.cluster import CLIENT, client_end

_CALLER: Final = ContextVar("caller", default=CLIENT)


def call_as(number: int) -> None:
    """What this task connects to from now on, it does as the client of this number."""
    _CALLER.set(client_end(number))


def calling_end() -> str:
    """The end of links at which this task is; `CLIENT` where nobody said."""
    return _CALLER.get()
