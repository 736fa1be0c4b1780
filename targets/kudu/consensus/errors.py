"""Refusals of a replica, sorted by the conclusions that a caller may draw."""

from __future__ import annotations

from targets.kudu.consensus.messages import ConsensusErrorCode


class RaftError(Exception):
    """The root of what a replica raises on purpose."""


class NotAppendedError(RaftError):
    """Nothing was appended: the write did not and will not happen."""


class NotLeaderError(NotAppendedError):
    """This replica does not lead (for a read: could not confirm that it does)."""


class ConfigRefusedError(NotAppendedError):
    """A change of the configuration was refused; `code` is CAS_FAILED, INVALID_CONFIG (for good)
    or ILLEGAL_STATE (not now).
    """

    def __init__(self, code: ConsensusErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class OverloadedError(NotAppendedError):
    """Too many writes wait for their commit, or the payload is larger than one message."""


class IndeterminateError(RaftError):
    """The write was appended, then leadership or the time ran out: it may still commit."""
