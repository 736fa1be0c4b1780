"""Errors of the API: a message and an HTTP status, worded as upstream words them."""

from __future__ import annotations

from harness.errors import HarnessError

__all__ = ["ApiError"]


class ApiError(HarnessError):
    """A request that cannot be served."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
