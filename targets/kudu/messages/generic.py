"""`GenericService`: calls that masters and tablet servers serve alike."""

from __future__ import annotations

from targets.kudu.messages.base import GenericCall, Message


class LoseNamesResponse(Message, frozen=True):
    """The answer of a node that cannot resolve the requested names from now on."""


class LoseNamesRequest(GenericCall[LoseNamesResponse], frozen=True):
    """Have a node fail to resolve the hosts of `addresses` for `for_ms`.

    Kudu sets its flags `fail_dns_resolution` and `fail_dns_resolution_hostports` for the same
    purpose, without an end.
    """

    addresses: tuple[str, ...]
    for_ms: int
