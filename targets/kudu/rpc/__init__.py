"""The RPC layer of the bundled target: calls and answers as msgpack frames over `Env.net`.

After Kudu's `rpc/`: one cached connection per remote address, many calls on it at once, told apart
by a call id. A frame is the msgpack array `[kind, call_id, method, body]`.

* **A caller always knows what it may conclude.** Every error carries `sent`: False means that the
  request cannot have been processed (no server listens, no connection came up, the server refused
  it unread); True means that it may have been. Operations whose answer got lost are indeterminate,
  and this flag is where that begins.
* **Frames may be lost, doubled or reordered** by the nemesis. Answers to unknown call ids are
  ignored; a call id that a connection has already shown is not run again (a bounded window, below
  which everything counts as seen).
* **Nothing waits for ever.** Every call has a deadline; all deadlines of a connection share one
  lazily re-armed timer. A call that times out on a connection which has brought nothing since that
  call was sent retires the connection: later calls open a new one, instead of queueing behind a
  black hole that outlives the partition that caused it.
* **Cheap**, since a simulated second of a small cluster has some eighty calls. Frames are sent
  without waiting unless back-pressure holds them. No task per call at the client, and no future
  either for `RpcClient.start`; no task at the server for a handler that answers at once, or that
  returns an `Answer` that is set later.

A handler that raises anything but `RpcHandlerError` is a bug: its task fails, which panics the
node, so that the crash checker sees it.
"""

from __future__ import annotations

from targets.kudu.rpc.client import RpcClient
from targets.kudu.rpc.errors import (
    RpcBusyError,
    RpcConnectionError,
    RpcError,
    RpcHandlerError,
    RpcRemoteError,
    RpcTimeoutError,
)
from targets.kudu.rpc.server import CALLS_IN_FLIGHT_MAX, Answer, Handler, RpcServer
from targets.kudu.rpc.wire import Call, R_co, parse_address

__all__ = [
    "CALLS_IN_FLIGHT_MAX",
    "Answer",
    "Call",
    "Handler",
    "R_co",
    "RpcBusyError",
    "RpcClient",
    "RpcConnectionError",
    "RpcError",
    "RpcHandlerError",
    "RpcRemoteError",
    "RpcServer",
    "RpcTimeoutError",
    "parse_address",
]
