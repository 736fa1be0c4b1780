"""The RPC layer of the bundled target: calls and answers as msgpack frames over `Env.net`.

As in Kudu's `rpc/`, one cached connection per remote address carries many concurrent calls, each
with its own call id. A frame is the msgpack array `[kind, call_id, method, body]`.

* **Every error says whether the request may have been processed** (`sent`). False means that it
  cannot have been: no server listens, no connection was opened, or the server refused the request
  unread. A client derives from `sent` whether an operation is indeterminate.
* **Frames may be lost, doubled or reordered** by the nemesis. Answers to unknown call ids are
  ignored. A server handles a call id only once per connection.
* **Nothing waits forever.** Every call has a deadline. If a call times out, and its connection has
  received nothing since the call was sent, the client opens a new connection for later calls.
  Otherwise these would wait on a connection that stays dead even after a partition has healed.
* **Calls are cheap**, since a simulated second of a small cluster has some eighty calls. Frames are
  sent without waiting, unless back-pressure delays them. All deadlines of a connection share one
  timer. The client needs no task per call. The server needs no task for a handler that answers at
  once, or that returns an `Answer` to be set later.

A handler that raises anything except `RpcHandlerError` has a bug: its task fails, the node panics,
and the crash checker reports it.
"""

from __future__ import annotations

from targets.kudu.rpc.client import Caller, RpcClient
from targets.kudu.rpc.errors import (
    RpcBusyError,
    RpcConnectionError,
    RpcError,
    RpcHandlerError,
    RpcRemoteError,
    RpcTimeoutError,
)
from targets.kudu.rpc.server import CALLS_IN_FLIGHT_MAX, Answer, Handler, RpcServer
from targets.kudu.rpc.wire import Call, R_co, frame_name, parse_address

__all__ = [
    "CALLS_IN_FLIGHT_MAX",
    "Answer",
    "Call",
    "Caller",
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
    "frame_name",
    "parse_address",
]
