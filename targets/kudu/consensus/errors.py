"""Errors of a replica. Their classes say whether a failed operation may still take effect."""

from __future__ import annotations

from targets.kudu.consensus.messages import ConsensusErrorCode


class RaftError(Exception):
    """The base class of errors that a replica raises on purpose."""


class NotAppendedError(RaftError):
    """The replica appended nothing: the requested write did not happen and never will."""


class NotLeaderError(NotAppendedError):
    """This replica does not lead, or could not confirm for a read that it leads."""


class ConfigRefusedError(NotAppendedError):
    """The leader refused to change the configuration.

    `code` is CAS_FAILED, INVALID_CONFIG (refused for good) or ILLEGAL_STATE (refused for now).
    """

    def __init__(self, code: ConsensusErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class OverloadedError(NotAppendedError):
    """Too many writes wait for their commit, or the payload is too large for a message."""


class IndeterminateError(RaftError):
    """The write was appended, but leadership was lost or a timeout expired: it may still commit."""
