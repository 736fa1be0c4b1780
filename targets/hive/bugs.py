"""The ledger of the bundled metastore: one row a switch, as in `targets.kudu.bugs`.

`strict` promises what a catalog should. `hive2.3` and `hive4` are as those releases behave: what
their rows do is permitted there (`targets.hive.permits`) and reported as such.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from targets.ledger import Find, Row, switched_on

__all__ = ["BUGS", "PROFILES", "Bug", "bugs_of"]

_DDL: Final = "targets.hive.metastore.ddl"
_SERVICE: Final = "targets.hive.metastore.service"
_CLIENT: Final = "targets.hive.client.client"
HIVE: Final = ("hive2.3", "hive4")


class Bug(enum.Enum):
    """All switches. The id on the command line has dashes: `Bug.DROP_DROP` is `DROP-DROP`."""

    # Every call asks for some; an enum's own hash is that of its name, made in Python.
    __hash__ = object.__hash__

    DROP_DROP = Row(
        title="a drop does not look at how many rows it deleted",
        upstream="two drops of one table at once are both acknowledged: 20 of 25 on 2.3.9",
        fixed="open",
        profiles=HIVE,
        where=(_DDL,),
        find=Find("--nemesis none --time-limit 20", "linearizable-hms", 1),
    )
    DROP_RENAME = Row(
        title="a drop deletes by id what it has read by name, without a lock",
        upstream="a table that is renamed meanwhile is dropped under its new name, and both are "
        "acknowledged: 5 of 25 on 2.3.9",
        fixed="open",
        profiles=("hive2.3",),
        where=(_DDL,),
        find=Find("--nemesis none --time-limit 20", "linearizable-hms", 1),
    )
    FAILBACK_FLAP = Row(
        title="a client returns to the first metastore at every reconnect, whatever came of it",
        upstream="sequential selection: one that accepts connections and answers nothing has every "
        "call wait for its time-out, and no other metastore is tried",
        fixed="open by design",
        profiles=HIVE,
        where=(_CLIENT, "targets.hive.system"),
        find=Find("--fault 'pause node:hms1' --time-limit 20", "hms-failover", 1),
    )
    HIVE_15424 = Row(
        title="a create that finds its table rolls back by dropping it",
        upstream="what the roll-back removed was somebody else's table",
        fixed="later, release not checked",
        where=(_SERVICE,),
        find=Find("--nemesis none --time-limit 20", "linearizable-hms", 1),
    )
    HIVE_16886 = Row(
        title="the next event id is read without a lock",
        upstream="two metastores gave two events the same id, and readers skipped one of them",
        fixed="later, release not checked",
        where=(_DDL, "targets.hive.metastore.events"),
        find=Find("--nemesis none --time-limit 20", "hms-events", 1),
    )
    HIVE_19219 = Row(
        title="a reader of events does not look whether some were removed before it came",
        upstream="the cleaner ran ahead of a slow reader, which missed drops and renames silently",
        fixed="later, release not checked",
        where=(_CLIENT,),
        find=Find("--nemesis none --event-ttl-ms 500 --time-limit 20", "hms-events", 1),
    )
    HIVE_21640 = Row(
        title="a table's directory is made before its transaction, and removed behind it",
        upstream="a create finds the directory of a table that was just dropped, and then loses "
        "it; so does one whose rival rolls back (HIVE-21759)",
        fixed="open",
        where=(_DDL, _SERVICE),
        find=Find("--nemesis none --time-limit 20", "hms-invariants", 1),
    )
    HIVE_24468 = Row(
        title="the time of an event is that of the metastore's own clock",
        upstream="where clocks differ, the order of times is not that of ids",
        fixed="open",
        profiles=HIVE,
        where=("targets.hive.metastore.events",),
        find=Find(
            "--selection random --fault 'clock one@hms offset=5s' --time-limit 20", "hms-events", 1
        ),
    )
    HIVE_25144 = Row(
        title="a create is sent again after a lost answer, and what the second says is believed",
        upstream="the client is told AlreadyExists of its own success",
        fixed="open, a fix was proposed 2021-05-20",
        where=(_SERVICE, _CLIENT),
        find=Find("--fault 'cut node:hms1 to client' --time-limit 20", "linearizable-hms", 3),
    )
    HIVE_26016 = Row(
        title="a create looks for the table in a transaction of its own, before that of the insert",
        upstream="existence was checked twice, apart: a wider race, whose loser is told of a "
        "duplicate key instead of AlreadyExists",
        fixed="later, release not checked",
        where=(_DDL, _SERVICE),
        find=Find("--nemesis none --time-limit 20", "hms-invariants", 1),
    )
    TOKEN_MEMORY = Row(
        title="delegation tokens are in the memory of the metastore that issued them",
        upstream="MemoryTokenStore is the default: the other metastore does not know the token, "
        "and nobody does after a restart",
        fixed="open by design",
        profiles=HIVE,
        where=("targets.hive.system",),
        find=Find("--workload hms-tokens --nemesis none --time-limit 20", "hms-tokens", 1),
    )
    TOKEN_RENEW_GAP = Row(
        title="renewing a token removes it and adds it again",
        upstream="the other metastore may look in between and refuse a token that is good",
        fixed="open",
        profiles=HIVE,
        where=("targets.hive.tokens.manager",),
        find=Find("--workload hms-tokens --nemesis none --time-limit 20", "hms-tokens", 1),
    )
    CACHED_STORE = Row(
        title="each metastore answers reads from a cache of its own",
        upstream="CachedStore, off by default, is brought up to date once in a while: what one "
        "metastore acknowledged is not visible at the other",
        fixed="open by design",
        where=(_SERVICE,),
        find=Find("--selection random --nemesis none --time-limit 20", "linearizable-hms", 1),
    )

    NO_REQUEST_IDS = Row(
        title="DDL has no request ids",
        upstream="clients send a call once more when its answer was lost, and it may act twice; "
        "what the second is told is then taken for unknown",
        fixed="open by design",
        profiles=HIVE,
        where=(_SERVICE, _CLIENT),
        find=None,
    )
    READ_COMMITTED = Row(
        title="transactions of metastores are read committed",
        upstream="Hive's own isolation. By itself it breaks nothing here: changes lock the rows "
        "that they are about to change",
        fixed="open by design",
        profiles=HIVE,
        where=(_DDL,),
        find=None,
    )

    @property
    def id(self) -> str:
        """Its name on the command line and in cases."""
        return self.name.replace("_", "-")


BUGS: Final[Mapping[str, str]] = {
    bug.id: f"{bug.value.title} ({bug.value.until})" for bug in sorted(Bug, key=lambda b: b.name)
}
"""Every switch in one line, sorted."""

PROFILES: Final[Mapping[str, frozenset[Bug]]] = {
    profile: frozenset(bug for bug in Bug if profile in bug.value.profiles)
    for profile in ("strict", *HIVE)
}
"""The rows of each profile."""

_BY_ID: Final = {bug.id: bug for bug in Bug}


def bugs_of(profile: str, ids: tuple[str, ...]) -> frozenset[Bug]:
    """The rows of `profile` and those switched on; raises `UsageError` for unknown ones."""
    return switched_on(PROFILES, _BY_ID, profile, ids)
