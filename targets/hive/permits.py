"""The permits of a profile: each excuses violations that one defect of the profile explains."""

from __future__ import annotations

from typing import Final

from harness.permits import DDL_TWICE, DROP_RENAMED, DROP_TWICE, Permit
from targets.hive.bugs import PROFILES, Bug
from targets.hive.tokens.token_stores import StoreKind

EVENTS: Final = "hms-events"
TOKENS: Final = "hms-tokens"

_PERMITS: Final[dict[Bug, Permit]] = {
    Bug.FAILBACK_FLAP: Permit(
        name="failback-flap",
        why="a client reconnects to the first metastore first, even if it has failed",
        rules={"hms-failover": ("other-not-tried",)},
    ),
    Bug.DROP_DROP: Permit(
        name=DROP_TWICE,
        why="a drop does not check how many rows it deleted",
        rules={EVENTS: ("replay",)},
    ),
    Bug.DROP_RENAME: Permit(
        name=DROP_RENAMED,
        why="a drop reads the table by name and deletes it by id",
        rules={EVENTS: ("replay",)},
    ),
    Bug.HIVE_24468: Permit(
        name="instance-clocks",
        why="the time of an event is that of the metastore's own clock",
        rules={EVENTS: ("times",)},
    ),
    Bug.TOKEN_MEMORY: Permit(
        name="token-memory",
        why="tokens are in the memory of the metastore that issued them",
        rules={TOKENS: ("unshared",)},
    ),
    Bug.TOKEN_RENEW_GAP: Permit(
        name="token-renew-gap",
        why="renewing a token removes it and adds it again",
        rules={TOKENS: ("renew-gap",)},
    ),
    Bug.NO_REQUEST_IDS: Permit(
        name=DDL_TWICE,
        why="DDL has no request ids, and clients resend it",
        rules={EVENTS: ("twice",)},
    ),
}


def permits_of_profile(profile: str, store: StoreKind) -> list[Permit]:
    """Return the permits of a profile with this token store, sorted by name."""
    bugs = PROFILES[profile]
    if store is not StoreKind.MEMORY:
        bugs -= {Bug.TOKEN_MEMORY}
    permits = [permit for bug, permit in _PERMITS.items() if bug in bugs]
    return sorted(permits, key=lambda permit: permit.name)
