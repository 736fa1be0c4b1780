"""The Java client's hidden attempts: which requests it sent, and what each may have done.

The client resends a request until it is answered or the time limit has passed, even a change that
may have taken effect. Its traces show each RPC with its outcome. The outcome of an operation
follows from all its attempts:

| the attempts of a change                                        | outcome |
|-----------------------------------------------------------------|---------|
| the last was acknowledged                                       | ok      |
| the last was refused, and no earlier one may have had an effect | fail    |
| none may have had an effect, and the client gave up             | fail    |
| any other, such as refused after an attempt without an answer   | info    |

A client that reports a timeout may continue. If it was looking for the server at that moment, it
may still send the request afterwards, without a time limit: the timeout resets the RPC's
`timeoutTracker`, and `RetryRpcCB` and `RetryRpcErrback` in `AsyncKuduClient` (1.18.1) continue. So
a change that ends with TIMED_OUT is `info`, even if it was never sent.

The client's errors have a status and a message, but not the code of Kudu's servers, so they are
recognized by their messages. After an unknown message, the attempt may have had an effect
(`Effect.UNKNOWN`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.ops import Attempt
from targets.kudu.client.classify import Effect

OK: Final = "OK"
OPEN: Final = "OPEN"
"""The code used if the client did not return in time, and so reported no error itself."""
GOES_ON: Final = frozenset({OPEN, "TIMED_OUT"})
"""Codes of errors after which the client may still send the request."""
NO_ANSWER: Final = "NONE"
MISSING: Final = "the table does not exist: table_name:"
"""Part of the text by which masters say that no table has this name."""
_SENT: Final = "SEND_TO_SERVER"
_ENDED: Final = frozenset({"RECEIVE_FROM_SERVER", "SLEEP_THEN_RETRY"})
_TRUNCATED: Final = "TRACE_TRUNCATED"
_REFUSED: Final = frozenset({"ALREADY_PRESENT", "NOT_FOUND", "INVALID_ARGUMENT"})
_LOST: Final = ("no longer the leader", "sys-catalog")
"""Phrases in a master's error after which the change may still happen, with any status."""
_NO_MASTER: Final = (
    "Not the leader",
    "not yet ready",
    "is not initialized",
    "ConsensusState is not available",
    "is already reserved",
)
"""Phrases in the error of a master that did nothing and expects the client to ask again."""
_NO_TABLET: Final = (
    "is not leader of this config",
    "Tablet not found",
    "Tablet not RUNNING",
)
"""Phrases in the error of a tablet server that did nothing."""


class Sent(NamedTuple):
    """One RPC that the client sent; `end_ns` is `None` while it has no outcome."""

    method: str
    server: str
    tablet: str | None
    start_ns: int
    end_ns: int | None
    code: str
    text: str


def read_frames(frames: Sequence[Mapping[str, Any]]) -> tuple[list[Sent], bool]:
    """Return the RPCs that the traces show, in the order in which they were sent.

    The second value is true if a trace reached its maximum length, so that later attempts are
    missing.
    """
    sent: list[Sent] = []
    open_: dict[int, int] = {}
    truncated = False
    for frame in frames:
        call, action = frame["call"], frame["action"]
        if action == _SENT:
            open_[call] = len(sent)
            sent.append(
                Sent(
                    frame["method"],
                    frame["server"] or "",
                    frame["tablet"],
                    frame["at_ns"],
                    None,
                    NO_ANSWER,
                    "",
                )
            )
        elif action in _ENDED and call in open_:
            # if a call has two frames with an outcome, the first one counts
            place = open_.pop(call)
            sent[place] = sent[place]._replace(
                end_ns=frame["at_ns"], code=frame["code"], text=frame["text"]
            )
        truncated = truncated or action == _TRUNCATED
    return sent, truncated


def recorded(
    sent: Sequence[Sent], name_of: Callable[[str], str], start_ns: int, now_ns: int
) -> tuple[Attempt, ...]:
    """Convert RPCs to the attempts of a history. The operation began at `start_ns`."""
    return tuple(
        Attempt(
            name_of(each.server).partition(":")[0],
            min(start_ns + each.start_ns, now_ns),
            now_ns if each.end_ns is None else min(start_ns + each.end_ns, now_ns),
            outcome_text(each),
        )
        for each in sent
    )


def outcome_text(sent: Sent) -> str:
    """Describe the outcome of an attempt."""
    if sent.code == OK:
        return "ok"
    if sent.code == NO_ANSWER:
        return "RPC/SENT: no answer"
    return f"{sent.code}: {sent.text}"


def effect_at_master(sent: Sent) -> Effect:
    """Return the possible effect of an attempt to change the catalog."""
    if sent.code == OK:
        return Effect.DONE
    if any(text in sent.text for text in _LOST):
        return Effect.UNKNOWN
    if any(text in sent.text for text in _NO_MASTER):
        return Effect.NONE
    return Effect.REFUSED if sent.code in _REFUSED else Effect.UNKNOWN


def effect_at_tablet(sent: Sent) -> Effect:
    """Return the possible effect of an attempt to write to a tablet."""
    if sent.code == OK:
        return Effect.DONE
    nothing = any(text in sent.text for text in _NO_TABLET)
    return Effect.NONE if nothing else Effect.UNKNOWN


class Outcome(NamedTuple):
    """The combined result of all attempts of one change.

    `last` is the last attempt, if there is one. `lost` is true if an attempt may have had an
    effect. A last attempt that was acknowledged or refused does not count.
    """

    last: Sent | None
    effect: Effect
    lost: bool


def outcome_of(
    sent: Sequence[Sent], effect: Callable[[Sent], Effect], *, may_go_on: bool
) -> Outcome:
    """Judge all attempts of one change. With `may_go_on`, the client may still send another one."""
    if not sent:
        return Outcome(None, Effect.NONE, lost=may_go_on)
    *earlier, last = map(effect, sent)
    lost = Effect.UNKNOWN in earlier or last is Effect.UNKNOWN
    may_go_on = may_go_on and last not in {Effect.DONE, Effect.REFUSED}
    return Outcome(sent[-1], last, lost or may_go_on)
