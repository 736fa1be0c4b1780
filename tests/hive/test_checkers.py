"""The checkers of events, invariants and failover, on correct histories and on incorrect ones."""

import pytest

from checkers.hms.events import EventsChecker
from checkers.hms.failover import FailoverChecker
from checkers.hms.invariants import InvariantsChecker
from harness.errors import HistoryError
from harness.ops import History, OpType, Verdict
from harness.permits import permitted_in
from tests.hive.histories import HmsWriter, event, sent_to
from tests.support.histories import MS

EVENTS, INVARIANTS, FAILOVER = EventsChecker(), InvariantsChecker(), FailoverChecker()
CREATED = event(1, "CREATE", None, ("d.x", "a"))
ALTERED = event(2, "ALTER", ("d.x", "a"), ("d.x", "b"))
MOVED = event(3, "ALTER", ("d.x", "b"), ("e.y", "c"))
DROPPED = event(4, "DROP", ("e.y", "c"))
LOG = [CREATED, ALTERED, MOVED, DROPPED]


def judge(checker, writer):
    return checker.check(History(writer.lines), None, time_limit_s=10.0)


def broken(checker, writer):
    """Return the broken rules, or the verdict if there are none."""
    found = judge(checker, writer)
    if found.verdict is not Verdict.INVALID:
        return found.verdict.value
    assert found.explanation
    return "+".join(found.details["by_invariant"])


# --- events ------------------------------------------------------------------------------------


CHANGES = (
    ("create", "d.x", "a", None),
    ("alter", "d.x", "b", None),
    ("rename", "d.x", "c", "e.y"),
    ("drop", "e.y", "d", None),
)


def life(events=LOG, polled=None, *, tables=(), next_event=5, skip=(), before=()):
    """Build a history of a create, alter, rename and drop, with a reader and the final log."""
    h = HmsWriter()
    for permit in before:
        h.permitting(permit)
    for f, name, nonce, new in CHANGES:
        if nonce not in skip:
            h.done(0, f, name, nonce, new)
    h.polled(1, 0, *(events if polled is None else polled))
    h.snapshot(tables, events, next_event)
    return h


def at(ident, row):
    return [ident, *row[1:]]


def test_a_log_that_tells_all_is_valid():
    assert broken(EVENTS, life()) == "valid"
    assert judge(EVENTS, life()).details["events"] == 4


def test_a_log_that_was_cleaned_is_valid_as_far_as_it_goes():
    assert broken(EVENTS, life(LOG[2:], LOG)) == "valid"
    assert broken(EVENTS, life([], LOG)) == "valid"


@pytest.mark.parametrize(
    ("history", "rule"),
    [
        (lambda: life(LOG, [CREATED, MOVED]), "gaps"),
        (lambda: life(LOG, [ALTERED]), "gaps"),
        (lambda: life([CREATED, ALTERED, MOVED, at(5, DROPPED)], [], next_event=6), "gaps"),
        (lambda: life(LOG, [CREATED, at(2, MOVED)]), "order+times+twice+unique"),
        (lambda: life([*LOG, DROPPED], []), "replay+unique"),
        (lambda: life([CREATED, at(3, ALTERED), at(2, MOVED), DROPPED], []), "order+replay+times"),
        (lambda: life(LOG[:3], [], tables=[["e.y", 1, "c"]], next_event=4, skip="bd"), "phantom"),
        (lambda: life(LOG[:2], [], tables=[["d.x", 1, "b"]], next_event=3), "lost"),
        (lambda: life([*LOG, at(5, event(5, "CREATE", None, ("d.x", "a")))], next_event=6,
                      tables=[["d.x", 1, "a"]]), "twice"),
        (lambda: life(tables=[["d.x", 1, "a"]]), "replay"),
        (lambda: life([CREATED, ALTERED, MOVED, event(4, "DROP", ("d.x", "c"))],
                      tables=[["e.y", 1, "c"]]), "replay"),
        (lambda: life([CREATED, ALTERED, event(3, "ALTER", ("d.x", "b"), ("e.y", "c"), 1),
                       DROPPED]), "times"),
    ],
)  # fmt: skip
def test_each_rule_finds_what_breaks_it(history, rule):
    assert broken(EVENTS, history()) == rule


def test_a_change_that_was_refused_is_in_no_log():
    h = HmsWriter()
    h.refused(0, "create", "d.x", "a", "already-exists")
    h.snapshot([["d.x", 1, "a"]], [CREATED], 2)
    assert broken(EVENTS, h) == "phantom"
    h = HmsWriter()
    h.gone(0, "create", "d.x", "a")
    h.snapshot([["d.x", 1, "a"]], [CREATED], 2)
    assert broken(EVENTS, h) == "valid"


def test_a_permit_covers_only_its_own_rule():
    backwards = [CREATED, event(2, "ALTER", ("d.x", "a"), ("d.x", "b"), time_ms=0), MOVED, DROPPED]
    permit = ("instance-clocks", {"rules": {"hms-events": ["times"]}})
    assert broken(EVENTS, life(backwards)) == "times"
    found = judge(EVENTS, life(backwards, before=[permit]))
    assert permitted_in(found) == {"instance-clocks": 1}
    more = life(backwards, [backwards[2]], before=[permit])
    assert broken(EVENTS, more) == "gaps"


def test_without_a_log_nothing_is_known():
    h = HmsWriter()
    h.polled(0, 0)
    assert broken(EVENTS, h) == "unknown"
    h.fact("snapshot", {"rows": None, "metastores": {}, "failover_s": 1.0})
    assert broken(EVENTS, h) == "unknown"


def test_invalid_events_are_refused():
    with pytest.raises(HistoryError):
        judge(EVENTS, life(LOG, [["one"]]))


# --- clients that poll events --------------------------------------------------------------------


def reader(*polls, log=LOG, tables=(), next_event=5):
    """Build polls (after, events, more) of a reader, one after each change in `LOG`."""
    h = HmsWriter()
    changes = [*CHANGES]
    for poll in polls:
        after, events, more = (*poll, {})[:3]
        h.polled(1, after, *events, **more)
        if changes:
            f, name, nonce, new = changes.pop(0)
            h.done(0, f, name, nonce, new)
    h.snapshot(tables, log, next_event)
    return h


START = (0, [])


@pytest.mark.parametrize(
    ("polls", "more", "rule"),
    [
        ([START, (0, LOG[:1]), (1, LOG[1:2]), (2, LOG[2:3]), (3, LOG[3:])], {}, "valid"),
        # A change that was not acknowledged before the poll may appear later.
        ([START, (0, LOG[:1]), (1, [ALTERED, MOVED]), (3, []), (3, [DROPPED])], {}, "valid"),
        ([START, (0, []), (0, LOG[:2]), (2, LOG[2:3]), (3, LOG[3:])], {}, "missed"),
        ([START, (0, LOG[:1]), (2, LOG[2:3]), (3, []), (3, LOG[3:])], {}, "missed+once"),
        ([START, (0, LOG[:1]), (0, LOG[:2]), (2, LOG[2:3]), (3, LOG[3:])], {}, "once"),
        ([START, (0, LOG[:1]), (1, [ALTERED, ALTERED]), (2, [MOVED]), (3, [DROPPED])], {}, "once"),
        # A reader must start again if the cleaner removed its events, but not if they exist.
        ([START, (0, LOG[:1]), (1, [], {"missing": 2, "to": 2}), (2, [MOVED]), (3, [DROPPED])],
         {"log": LOG[2:]}, "valid"),
        ([START, (0, LOG[:1]), (1, [], {"missing": 2, "to": 2}), (2, [MOVED]), (3, [DROPPED])],
         {}, "anew"),
        ([START, (0, LOG[:1]), (1, [], {"missing": 2, "to": 1}), (2, [MOVED]), (3, [DROPPED])],
         {"log": LOG[2:]}, "once"),
        # An event is missing even if an earlier one exists, or if its id comes later.
        ([START, (0, LOG[:1]), (1, LOG[1:2]), (2, LOG[2:3]), (3, LOG[3:])],
         {"log": [ALTERED, DROPPED]}, "kept"),
        ([START, (0, LOG[:1]), (1, LOG[1:2]), (2, LOG[2:3]), (3, LOG[3:])],
         {"log": [], "next_event": 4}, "kept"),
        ([START, (0, LOG[:1]), (1, LOG[1:2]), (2, LOG[2:3]), (3, LOG[3:])], {"log": []}, "valid"),
        # The cleaner removed all events; only the next event's id shows this.
        ([START, (0, []), (0, []), (0, [], {"missing": 1, "to": 3}), (3, LOG[3:])],
         {"log": LOG[2:]}, "valid"),
        ([START, (0, []), (0, []), (0, []), (0, [])], {"log": []}, "valid"),
        ([START, (0, []), (0, []), (0, []), (0, [])], {"log": LOG[2:]}, "missed"),
        # After a cleaning, the log is replayed from the events that readers saw.
        ([START, (0, LOG[:1]), (1, LOG[1:2]), (2, LOG[2:3]), (3, LOG[3:])],
         {"log": [], "tables": [["e.y", 1, "c"]]}, "replay"),
        ([START, (0, LOG[:1]), (1, LOG[1:2]), (2, LOG[2:3])],
         {"log": [], "tables": [["e.y", 1, "c"]]}, "valid"),
    ],
)  # fmt: skip
def test_a_reader_sees_every_event_once_and_in_time(polls, more, rule):
    assert broken(EVENTS, reader(*polls, **more)) == rule


def test_a_full_poll_owes_no_more_than_it_holds():
    many = [event(n, "CREATE", None, (f"d.t{n}", f"n{n}")) for n in range(1, 102)]

    def history(first):
        h = HmsWriter()
        h.polled(1, 0)
        for n in range(1, 102):
            h.done(0, "create", f"d.t{n}", f"n{n}")
        h.polled(1, 0, *many[:first])
        h.polled(1, first)
        h.snapshot([[f"d.t{n}", n, f"n{n}"] for n in range(1, 102)], many, 102)
        return h

    full = judge(EVENTS, history(100))
    assert full.details["by_invariant"] == {"missed": 1}
    assert judge(EVENTS, history(99)).details["by_invariant"] == {"missed": 2}


# --- invariants --------------------------------------------------------------------------------


def rows(tables=(["d.x", 1, "a"],), **more):
    h = HmsWriter()
    h.done(0, "create", "d.x", "a")
    h.refused(0, "create", "d.x", "r", "already-exists")
    h.gone(1, "create", "d.z", "z")
    h.snapshot(tables, **more)
    return h


@pytest.mark.parametrize(
    ("history", "rule"),
    [
        (rows, "valid"),
        (lambda: rows([["d.x", 1, "a"], ["d.z", 2, "z"]]), "valid"),
        (lambda: rows([["d.x", 1, "a"], ["d.x", 2, "z"]]), "names"),
        (lambda: rows(orphans=[7]), "orphans"),
        (lambda: rows([["d.x", 1, "r"]]), "origins"),
        (lambda: rows([["d.x", 1, "none"]]), "origins"),
        (lambda: rows([["d.x", 1, None]]), "origins"),
        (lambda: rows(hms1=["d.x"], hms2=[]), "instances"),
        (lambda: rows(hms1=["d.x"], hms2=None), "valid"),
        (lambda: rows(directories=["d.x", "d.y"]), "valid"),
        (lambda: rows(directories=["d.y"]), "directories"),
    ],
)
def test_rows_are_whole_and_every_metastore_shows_them(history, rule):
    assert broken(INVARIANTS, history()) == rule


@pytest.mark.parametrize(("more", "rule"), [({}, "valid"), ({"directory": "gone"}, "directories")])
def test_a_visible_table_has_its_directory(more, rule):
    h = HmsWriter()
    h.done(0, "create", "d.x", "a")
    h.saw(1, "d.x", "a", **more)
    h.snapshot([["d.x", 1, "a"]])
    assert broken(INVARIANTS, h) == rule


@pytest.mark.parametrize(
    ("f", "result", "ok"),
    [
        ("create", "already-exists", True), ("create", "invalid-object", True),
        ("create", "no-such-object", False), ("create", "meta-exception", False),
        ("drop", "no-such-object", True), ("drop", "already-exists", False),
        ("alter", "invalid-operation", True), ("rename", "no-such-object", True),
        ("rename", "already-exists", False),
    ],
)  # fmt: skip
def test_refusals_are_the_exceptions_of_their_calls(f, result, ok):
    h = HmsWriter()
    h.refused(0, f, "d.x", "a", result, "d.y" if f == "rename" else None)
    h.snapshot()
    assert broken(INVARIANTS, h) == ("valid" if ok else "wrong-error")
    del h.lines[-2:]
    assert broken(INVARIANTS, h) == ("unknown" if ok else "wrong-error")


# --- failover ----------------------------------------------------------------------------------


def lost(*nodes, gap_ms=1, faults=(), kind=OpType.INFO, connects=(), lists=None, by_uris=None):
    """Build a history with one operation, whose attempts went to these nodes.

    `faults` are (target, begin, end) in ms, plus the name if it is an administrator's operation.
    `lists` has the metastores that the client knew (at the begin, at the end).
    """
    h = HmsWriter()
    h.fact("phase", {"phase": "chaos"})
    times = []
    for number, (target, begin, end, *operation) in enumerate(faults):
        value = {"fault": f"f{number}", "targets": [target], "kind": "pause"}
        if operation:
            value |= {"kind": "operation", "what": {"fault": "operation", "name": operation[0]}}
        times += [(begin, {**value, "action": "inject"})]
        if end is not None:
            bite = {"count": 1, "unit": "processes"}
            times += [(end, {**value, "action": "heal", "bite": bite})]
    early = sorted((t, v["fault"], v) for t, v in times if t < 10_000)
    late = sorted((t, v["fault"], v) for t, v in times if t >= 10_000)
    for when, _, value in early:
        h.at(when)
        h.nemesis("pause", value)
    h.at(10_000)
    h.start(0, "create", "d.x", "a")
    attempts = sent_to(*nodes, gap_ms=gap_ms, first_ms=10_000)
    if connects:
        refused = [
            type(attempts[0])(node, attempts[0].end, attempts[0].end, "CONNECT: refused")
            for node in connects
        ]
        attempts = (attempts[0], *refused, *attempts[1:])
    for when, _, value in late:
        h.at(when)
        h.nemesis("pause", value)
    h.at(15_000)
    if lists is None:
        h.end(0, kind, attempts=attempts)
    else:
        h.add(
            0, kind, "create", dict(zip(("uris", "listed"), lists, strict=True)), attempts=attempts
        )
    h.at(60_000)
    h.snapshot()
    if by_uris is not None:
        h.lines[-1].value["failover_by_uris_s"] = by_uris
    return h


def test_a_failover_within_the_bound_is_valid():
    assert broken(FAILOVER, lost("hms1", "hms2", gap_ms=10_000, kind=OpType.OK)) == "valid"
    assert broken(FAILOVER, lost("hms1", "hms2", gap_ms=10_001, kind=OpType.OK)) == "bound"
    assert judge(FAILOVER, lost("hms1", "hms2", kind=OpType.OK)).details["failovers"] == 1


UP, LONG_AGO = [("hms1", 9_000, None)], [("hms2", 1_000, 3_000)]


@pytest.mark.parametrize(
    ("history", "rule"),
    [
        (lambda: lost("hms1", "hms1", faults=UP), "other-not-tried"),
        (lambda: lost("hms1", "hms1", faults=[*UP, *LONG_AGO]), "other-not-tried"),
        (lambda: lost("hms1", "hms1", faults=UP, kind=OpType.OK), "valid"),
        (lambda: lost("hms1", faults=UP), "valid"),
        (lambda: lost("hms1", "hms2", faults=UP), "valid"),
        (lambda: lost("hms1", "hms1", faults=UP, connects=["hms2"]), "valid"),
        (lambda: lost("hms1", "hms1", faults=[*UP, ("hms2", 9_500, None)]), "valid"),
        (lambda: lost("hms1", "hms1", faults=[*UP, ("hms2", 5_000, 6_000)]), "valid"),
        (lambda: lost("hms1", "hms1", faults=[*UP, ("hms2", 12_000, None)]), "valid"),
        (lambda: lost("hms1", "hms1", faults=[*UP, ("db", 12_000, None)]), "valid"),
    ],
)
def test_another_one_that_served_all_the_time_has_to_be_tried(history, rule):
    assert broken(FAILOVER, history()) == rule


BY_URIS = [2.0, 10.0, 12.0]
ADDED, REMOVED = ("hms2", 9_900, 9_990, "add-metastore"), ("hms2", 9_900, 9_990, "remove-metastore")


@pytest.mark.parametrize(
    ("gap_ms", "uris", "rule"),
    [
        (2_000, ["hms1"], "valid"),
        (2_001, ["hms1"], "bound"),
        (10_001, ["hms1", "hms2"], "bound"),
        (12_000, ["hms1", "hms2", "hms3"], "valid"),
        (12_001, ["hms1", "hms2", "hms3"], "bound"),
        (10_000, [], "valid"),
    ],
)
def test_the_bound_is_that_of_the_list_that_the_client_had(gap_ms, uris, rule):
    sent = {"gap_ms": gap_ms, "kind": OpType.OK, "by_uris": BY_URIS}
    assert broken(FAILOVER, lost("hms1", "hms1", lists=(uris, uris), **sent)) == rule


@pytest.mark.parametrize(
    ("uris", "listed", "faults", "rule"),
    [
        (["hms1", "hms2"], ["hms1", "hms2"], [], "other-not-tried"),
        # an administrator removed hms2 before or during the operation
        (
            ["hms1", "hms2"],
            ["hms1"],
            [],
            "valid",
        ),
        (["hms1"], ["hms1"], [], "valid"),  # the client knew only one metastore
        (["hms1", "hms2"], ["hms1", "hms2"], [ADDED], "other-not-tried"),
        (["hms1", "hms2"], ["hms1", "hms2"], [REMOVED], "valid"),  # hms2 was removed, but came back
        (["hms1", "hms3"], ["hms3"], [], "other-not-tried"),  # hms3 was added
    ],
)
def test_removed_metastores_are_not_expected_and_added_ones_are(uris, listed, faults, rule):
    history = lost("hms1", "hms1", faults=[*UP, *faults], lists=(uris, listed), by_uris=BY_URIS)
    assert broken(FAILOVER, history) == rule


def test_disturbances_of_the_harness_never_convict():
    h = lost("hms1", "hms1", faults=UP)
    gap = {"from_s": 11.0, "to_s": 13.0, "gap_s": 2.0}
    index = next(n for n, op in enumerate(h.lines) if op.time == 15_000 * MS)
    line = h.lines.pop()
    h.fact("heartbeat-gap", gap)
    h.lines.append(type(line)(len(h.lines), line.time, line.process, line.type, line.f, line.value))
    assert index
    assert broken(FAILOVER, h) == "valid"


def test_a_run_without_a_snapshot_is_unknown():
    h = HmsWriter()
    h.done(0, "create", "d.x", "a")
    assert broken(FAILOVER, h) == "unknown"
