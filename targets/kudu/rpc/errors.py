"""The reasons why a call got no answer. Each says whether the call may have been processed."""

from __future__ import annotations


class RpcError(Exception):
    """A call got no answer. If `sent` is False, no server processed the call."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class RpcTimeoutError(RpcError):
    """The deadline passed; if `sent` is True, the call may still be processed later."""


class RpcConnectionError(RpcError):
    """The client could not connect (`sent` False), or the connection broke later (`sent` True)."""


class RpcRemoteError(RpcError):
    """The server answered that it cannot handle the call; `message` is the reason.

    The method is unknown, the request is unreadable, or the handler raised `RpcHandlerError`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True)
        self.message = message


class RpcBusyError(RpcError):
    """Too many calls are unanswered, so the client or the server refused this one unprocessed."""


class RpcHandlerError(Exception):
    """Raised by a handler to answer with a remote error that carries the message."""
