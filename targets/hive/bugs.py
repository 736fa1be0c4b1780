"""The ledger of the bundled metastore: the list of its known defects, which can be switched on.

The profile `strict` has none of the defects. The profiles `hive2.3` and `hive4` have the defects of
these Hive releases. With such a profile, verdicts permit the effects of the defects
(`targets.hive.permits`) and report them as permitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from targets.ledger import Find, Row, Switch, profiles_of, switched_on, titles_of

_DDL: Final = "targets.hive.metastore.ddl"
_SERVICE: Final = "targets.hive.metastore.service"
_CLIENT: Final = "targets.hive.client.client"
_AT_WRITES: Final = (
    "--workload hms-events --nemesis restart-database --interval 3 --duration 1 --time-limit 20"
)
HIVE: Final = ("hive2.3", "hive4")


class Bug(Switch):
    """All known defects. On the command line, ids have dashes: `Bug.DROP_DROP` is `DROP-DROP`."""

    DROP_DROP = Row(
        title="a drop does not check how many rows it deleted",
        upstream="two concurrent drops of one table are both acknowledged (in 20 of 25 tries on "
        "2.3.9)",
        fixed="open",
        profiles=HIVE,
        where=(_DDL,),
        find=Find("--nemesis none --time-limit 20", "linearizable-hms", 1),
    )
    DROP_RENAME = Row(
        title="a drop looks a table up by name and deletes it by id, without a lock",
        upstream="a table that is renamed in between is dropped under its new name, and both "
        "calls are acknowledged (in 5 of 25 tries on 2.3.9)",
        fixed="open",
        profiles=("hive2.3",),
        where=(_DDL,),
        find=Find("--nemesis none --time-limit 20", "linearizable-hms", 1),
    )
    EVENT_AFTER_COMMIT = Row(
        title="an event is written after its change, in a separate transaction",
        upstream="DbNotificationListener runs as an ordinary event listener rather than a "
        "transactional one. The events of two changes may swap, and a metastore that "
        "exits in between leaves a change without an event",
        fixed="open by design",
        where=(_DDL,),
        find=Find(_AT_WRITES, "hms-events", 1),
    )
    EVENT_ID_AHEAD = Row(
        title="the next event id is taken in a separate transaction, as from an SQL sequence",
        upstream="not a defect of Hive. Ids become visible out of order, and ids of rolled-back "
        "changes never appear, so readers skip later events",
        fixed="open",
        where=("targets.hive.metastore.events",),
        find=Find(_AT_WRITES, "hms-events", 1),
    )
    FAILBACK_FLAP = Row(
        title="a client returns to the first metastore at every reconnect, even after failures",
        upstream="metastores are tried in order. If the first accepts connections but never "
        "answers, every call waits for its timeout and no other metastore is tried",
        fixed="open by design",
        profiles=HIVE,
        where=(_CLIENT, "targets.hive.system"),
        find=Find("--fault 'pause node:hms1' --time-limit 20", "hms-failover", 1),
    )
    HIVE_15424 = Row(
        title="a create that finds its table present rolls back by dropping it",
        upstream="the rollback removed a table that another client had created",
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
        title="a reader of events does not check whether events were removed before it read them",
        upstream="the cleaner overtook a slow reader, which silently missed drops and renames",
        fixed="later, release not checked",
        where=(_CLIENT,),
        find=Find("--nemesis none --event-ttl-ms 500 --time-limit 20", "hms-events", 1),
    )
    HIVE_21640 = Row(
        title="a table's directory is created before its transaction and removed after it",
        upstream="a create finds the directory of a table that was just dropped, and then loses "
        "it. The same happens when a competing create rolls back (HIVE-21759)",
        fixed="open",
        where=(_DDL, _SERVICE),
        find=Find("--nemesis none --time-limit 20", "hms-invariants", 1),
    )
    HIVE_24468 = Row(
        title="an event's time is that of the metastore's own clock",
        upstream="if clocks differ, events ordered by time are not ordered by id",
        fixed="open",
        profiles=HIVE,
        where=("targets.hive.metastore.events",),
        find=Find(
            "--selection random --fault 'clock one@hms offset=5s' --time-limit 20", "hms-events", 1
        ),
    )
    HIVE_25144 = Row(
        title="a create is resent after a lost reply, and the second reply is believed",
        upstream="the client gets AlreadyExists for its own success",
        fixed="open, a fix was proposed 2021-05-20",
        where=(_SERVICE, _CLIENT),
        find=Find("--fault 'cut node:hms1 to client' --time-limit 20", "linearizable-hms", 3),
    )
    HIVE_26016 = Row(
        title="a create looks for the table in a separate transaction before the insert",
        upstream="existence was checked twice, in two transactions. The race window is wider, and "
        "the loser gets a duplicate-key error instead of AlreadyExists",
        fixed="later, release not checked",
        where=(_DDL, _SERVICE),
        find=Find("--nemesis none --time-limit 20", "hms-invariants", 1),
    )
    TOKEN_MEMORY = Row(
        title="delegation tokens are kept in the memory of the metastore that issued them",
        upstream="MemoryTokenStore is the default. Other metastores do not know the token, and a "
        "restart forgets it",
        fixed="open by design",
        profiles=HIVE,
        where=("targets.hive.system",),
        find=Find("--workload hms-tokens --nemesis none --time-limit 20", "hms-tokens", 1),
    )
    TOKEN_RENEW_GAP = Row(
        title="renewing a token removes it and adds it again",
        upstream="another metastore may look in between and refuse a valid token",
        fixed="open",
        profiles=HIVE,
        where=("targets.hive.tokens.manager",),
        find=Find("--workload hms-tokens --nemesis none --time-limit 20", "hms-tokens", 1),
    )
    CACHED_STORE = Row(
        title="each metastore answers reads from its own cache",
        upstream="CachedStore, off by default, refreshes periodically; a change that one metastore "
        "acknowledged is not yet visible at the other",
        fixed="open by design",
        where=(_SERVICE,),
        find=Find("--selection random --nemesis none --time-limit 20", "linearizable-hms", 1),
    )

    NO_REQUEST_IDS = Row(
        title="DDL has no request ids",
        upstream="clients resend a call whose answer was lost, so it may act twice; the answer to "
        "the second counts as unknown",
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


BUGS: Final[Mapping[str, str]] = titles_of(Bug)
PROFILES: Final[Mapping[str, frozenset[Bug]]] = profiles_of(Bug, ("strict", *HIVE))


def bugs_of(profile: str, ids: tuple[str, ...]) -> frozenset[Bug]:
    """Return the defects of `profile` and of `ids`. Raises `UsageError` for an unknown name."""
    return switched_on(Bug, PROFILES, profile, ids)
