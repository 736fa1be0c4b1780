"""`GenericService`: calls that both masters and tablet servers serve."""

from __future__ import annotations

from targets.kudu.messages.base import GenericCall, Message


class LoseNamesResponse(Message, frozen=True):
    """The answer of a node, which from now on fails to resolve the names in the request."""


class LoseNamesRequest(GenericCall[LoseNamesResponse], frozen=True):
    """Make a node fail to resolve the hosts of `addresses` for `for_ms`.

    Kudu has the flags `fail_dns_resolution` and `fail_dns_resolution_hostports` for the same
    purpose, but without a time limit.
    """

    addresses: tuple[str, ...]
    for_ms: int
