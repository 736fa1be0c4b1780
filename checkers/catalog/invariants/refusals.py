"""Decides whether each refusal is legal, by the error code of Kudu's masters.

The linearizability checker judges the answers "exists" and "not found". This module judges all
other refusals. A refusal that the history does not explain is a violation. An error code that is
not in this table counts as exempt:

| code                                 | legal                                                     |
|--------------------------------------|-----------------------------------------------------------|
| NOT_THE_LEADER, CATALOG_MANAGER_...  | at any time: another master leads, or none                |
| INVALID_SCHEMA                       | the request is invalid, or a step of an alter may fail    |
| TABLE_NOT_FOUND, unavailable         | a create or rename to that name may be under way          |
| TABLE_ALREADY_PRESENT, unavailable   | another create or rename to that name may be under way    |
| REPLICATION_FACTOR_TOO_HIGH, TOO_... | create only: after a fault or a change of leader (but not |
|                                      | if only other masters were stopped), or if the request    |
|                                      | has more replicas than there are servers                  |
| EVEN_, ILLEGAL_REPLICATION_FACTOR    | create only: the requested factor is even or not allowed  |
| TABLET_NOT_RUNNING                   | locate only, until an answer shows that the table is done |
| HIVE_METASTORE_ERROR                 | create, rename, delete: after the first disturbance       |
| UNKNOWN_ERROR, invalid argument      | never                                                     |

Which requests are invalid depends on the target's limits. If these differ from Kudu's limits, the
target's last snapshot declares them under the key `"accepts"`. Every field is optional:

    name_bytes    the maximum length of a name
    columns       the maximum number of columns of a table
    replicas      [fewest, most]: the permitted replication factors
    new_replicas  the maximum number of replicas of a new table, over all its tablets
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from checkers.catalog.invariants.permissions import CatalogFindings, Permissions
from checkers.catalog.invariants.unheard import first_disturbance, first_that_hides_servers
from checkers.catalog.sentences import tried
from harness.ops import History, OpType, Pair
from harness.vocabularies import fields_of, is_ok

CODE: Final = re.compile(r"([A-Z_]+)/([A-Z_]+)\b")
KEY_COLUMN: Final = "key"
NAME_BYTES_MAX: Final = 256
COLUMNS_MAX: Final = 290
"""A table with this many columns may refuse another column."""
PARTITIONS_MAX: Final = 60
REPLICAS: Final = (1, 7)
"""The smallest and the largest replication factor; even numbers are always refused."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of the target; limits that it does not declare are Kudu's, or infinite."""

    name_bytes: float = NAME_BYTES_MAX
    columns: float = math.inf
    replicas: tuple[float, float] = REPLICAS
    new_replicas: float = math.inf

    @classmethod
    def declared(cls, history: History) -> Self:
        snapshots = [op.value for op in history.facts("snapshot") if isinstance(op.value, Mapping)]
        accepted = snapshots[-1].get("accepts") if snapshots else None
        if not isinstance(accepted, Mapping):
            return cls()
        return cls(**{name: value for name, value in accepted.items() if name in cls.__slots__})


def _servers(history: History) -> float:
    snapshots = [op.value for op in history.facts("snapshot") if isinstance(op.value, Mapping)]
    return len((snapshots[-1].get("tservers") if snapshots else None) or ()) or math.inf


def check_refusals(history: History, findings: CatalogFindings) -> None:
    """Check every refusal against the table in this module's docstring.

    Refusals of a frozen run are exempt: it has no snapshot to declare the target's limits.
    """
    if any(history.facts("frozen")):
        findings.exempt("refusals")
        return
    context = _Context(history)
    for pair in history.pairs:
        done = pair.completion
        if done is None or done.type is not OpType.FAIL or not done.error:
            continue
        code = CODE.match(done.error)
        if code is None or code[1] == "RPC":
            continue  # the client itself reported this error; no node refused the request
        if (code[1], code[2]) in OBSERVATIONS:
            continue
        rule = _rule_of(code)
        if rule is None:
            findings.exempt("refusals")
            continue
        findings.look("refusals")
        wrong = rule(context, pair)
        if wrong:
            findings.violate(
                "refusals",
                f"{tried(pair)} and was refused with {done.error[:160]!r}, but {wrong}.",
                pair.invoke.index,
                permit=None if rule in TIMELESS else findings.may.superseded(pair),
            )


def demanded_refusals(history: History, since_ns: int) -> frozenset[str]:
    """Return the kinds of operations that the target refused since `since_ns` because of its
    limits.
    """
    limits = _Limits.declared(history)
    if limits == _Limits():
        return frozenset()
    context = _Context(history)
    usual = copy.copy(context)
    usual.limits = _Limits()
    demanded: set[str] = set()
    for pair in history.pairs:
        done = pair.completion
        if done is None or done.type is not OpType.FAIL or pair.invoke.time < since_ns:
            continue
        code = CODE.match(done.error or "")
        rule = code and _rule_of(code)
        if rule is _unplaceable:
            is_demanded = pair.invoke.f == "create" and _too_many_replicas(pair, limits)
        else:
            is_demanded = bool(rule and not rule(context, pair) and rule(usual, pair))
        if is_demanded:
            demanded.add(pair.invoke.f)
    return frozenset(demanded)


def _rule_of(code: re.Match[str]) -> Rule | None:
    return RULES.get((code[1], code[2])) or RULES.get((code[1], ""))


class _Context:
    """The facts of a history that may explain a refusal."""

    def __init__(self, history: History) -> None:
        # name -> the spans (call, return) of creates and renames that may give a table this name
        self.takers: dict[str, list[tuple[int, float]]] = {}
        # name -> the spans of operations after which the name may be free or belong to another
        # table
        self.changes: dict[str, list[tuple[int, float]]] = {}
        # name -> (call, return) of operations that prove that the table's tablets run
        self.running: dict[str, list[tuple[int, int]]] = {}
        self.servers = _servers(history)
        self.disturbed = first_disturbance(history)
        self.disturbed_ns = next((o.time for o in history if o.index == self.disturbed), math.inf)
        self.unheard = first_that_hides_servers(history)
        self.adds: dict[str, list[int]] = {}  # column -> the invocations that may add it to a table
        # column -> the invocations after which a table may lack it
        self.drops: dict[str, list[int]] = {}
        self._creates: list[tuple[int, frozenset[str]]] = []
        self._first: dict[tuple[str, bool], float] = {}
        self.version_max = 0
        self.lost = 0
        self.limits = _Limits.declared(history)
        self._widest = 1  # the largest number of columns of a new table
        self._adds_most = 0
        self._may = Permissions(history)
        for pair in history.pairs:
            self._take(pair)

    def _take(self, pair: Pair) -> None:
        call, done = pair.invoke, pair.completion
        asked, value = fields_of(call), fields_of(done)
        if isinstance(value.get("schema_version"), int):
            self.version_max = max(self.version_max, value["schema_version"])
        end = math.inf if done is None or pair.type is OpType.INFO else done.index
        span = (call.index, end)
        name, new_name = asked.get("name"), asked.get("new_name")
        if call.f in {"create", "rename", "delete"}:
            for touched in (name, new_name) if call.f == "rename" else (name,):
                self.changes.setdefault(str(touched), []).append(span)
        if call.f in {"create", "rename"}:
            taken = new_name if call.f == "rename" else name
            self.takers.setdefault(str(taken), []).append(span)
        # An answer that the permit `stale-read` excuses may be about an older table with this name,
        # so it does not prove that the tablets of the present table run.
        if (
            is_ok(pair)
            and self._may.superseded(pair) is None
            and (call.f == "locate" or (call.f == "is-create-done" and value.get("done")))
        ):
            assert done is not None
            self.running.setdefault(str(name), []).append((call.index, done.index))
        if pair.type is OpType.FAIL:
            return
        self.lost += pair.type is OpType.INFO and call.f == "alter"
        if call.f == "create":
            self._creates.append((call.index, frozenset(asked.get("columns") or ())))
            self._widest = max(self._widest, 1 + len(asked.get("columns") or ()))
        steps = asked.get("steps") or () if call.f == "alter" else ()
        self._adds_most = max(self._adds_most, _added(steps))
        for step in steps:
            self._take_step(call.index, step)

    def _take_step(self, index: int, step: Sequence[str]) -> None:
        kind, *names = step
        if kind in {"add", "rename"}:
            self.adds.setdefault(names[-1], []).append(index)
        if kind in {"drop", "rename"}:
            self.drops.setdefault(names[0], []).append(index)

    def may_lack_servers(self, pair: Pair) -> bool:
        """Whether the master that answered may not have heard from all tablet servers yet.

        All tablet servers heartbeat to all masters, not only to the leader (KUDU-1358). So only a
        fault can keep a master from knowing all of them.
        """
        assert pair.completion is not None
        if self.disturbed >= _end(pair):
            return False
        return self.unheard.get(pair.completion.node or "", -1) < _end(pair)

    def may_be_full(self, more: int) -> bool:
        """Whether some table may have no room for `more` additional columns.

        This is a cautious estimate: every version may have added as many columns as the largest
        alter, and dropped columns are ignored.
        """
        versions = self.version_max + self.lost
        columns = self._widest + versions * self._adds_most
        return versions >= COLUMNS_MAX or (more > 0 and columns + more > self.limits.columns)

    def may_have(self, column: str, pair: Pair) -> bool:
        return column == KEY_COLUMN or self._possible(column, self.adds, pair, has=True)

    def may_lack(self, column: str, pair: Pair) -> bool:
        """Whether dropping the column may fail because a table lacked it (or, for the key column,
        because Kudu refuses).
        """
        return column == KEY_COLUMN or self._possible(column, self.drops, pair, has=False)

    def _possible(
        self, column: str, changes: Mapping[str, list[int]], pair: Pair, *, has: bool
    ) -> bool:
        first = self._first.get((column, has))
        if first is None:
            fitting = (index for index, columns in self._creates if (column in columns) is has)
            first = self._first[column, has] = min(fitting, default=math.inf)
        others = (index for index in changes.get(column, ()) if index != pair.invoke.index)
        return min(first, next(others, math.inf)) < _end(pair)


def _end(pair: Pair) -> int:
    assert pair.completion is not None
    return pair.completion.index


Rule = Callable[[_Context, Pair], str | None]


def _legal(context: _Context, pair: Pair) -> None:
    del context, pair


def _never(context: _Context, pair: Pair) -> str | None:
    del context
    if pair.invoke.f != "create":
        return "the request is valid"
    asked = fields_of(pair.invoke)
    columns = [KEY_COLUMN, *(asked.get("columns") or ())]
    # Kudu has no error code of its own for a schema with empty or repeated names, which it cannot
    # even read.
    unreadable = not all(columns) or len(set(columns)) != len(columns)
    many = asked.get("partitions", 1) > PARTITIONS_MAX
    return None if many or unreadable else "the request is valid"


def _added(steps: Sequence[Sequence[str]]) -> int:
    return sum(list(step[:1]) == ["add"] for step in steps)


def _bad_name(name: Any, limits: _Limits) -> bool:
    return not name or "\x00" in str(name) or len(str(name).encode()) > limits.name_bytes


def _schema(context: _Context, pair: Pair) -> str | None:
    call = pair.invoke
    asked = fields_of(call)
    match call.f:
        case "create":
            columns = [KEY_COLUMN, *(asked.get("columns") or ())]
            bad = (
                any(_bad_name(name, context.limits) for name in [asked.get("name"), *columns])
                or len(set(columns)) != len(columns)
                or len(columns) > min(COLUMNS_MAX, context.limits.columns)
                or asked.get("partitions", 1) < 1
            )
            return None if bad else "its name, columns and partitions are valid"
        case "rename":
            bad = _bad_name(asked.get("new_name"), context.limits)
            return None if bad else "the new name is valid"
        case "alter":
            steps = asked.get("steps") or ()
            if context.may_be_full(_added(steps)) or _may_not_apply(steps, context, pair):
                return None
            return "its steps apply to every table that can have existed"
        case _:
            return "it does not change a schema"


def _may_not_apply(steps: Sequence[Sequence[str]], context: _Context, pair: Pair) -> bool:
    changed: dict[str, bool] = {}  # column -> whether it exists after the steps so far

    def may_have(column: str) -> bool:
        return changed.get(column, context.may_have(column, pair))

    def may_lack(column: str) -> bool:
        return not changed[column] if column in changed else context.may_lack(column, pair)

    for step in steps:
        match step:
            case ("add", column):
                if may_have(column) or _bad_name(column, context.limits):
                    return True
                changed[column] = True
            case ("drop", column):
                if may_lack(column):
                    return True
                changed[column] = False
            case ("rename", old, new):
                if may_lack(old) or may_have(new) or _bad_name(new, context.limits):
                    return True
                changed[old], changed[new] = False, True
            case _:
                return True
    return False


def _others_at(name: object, context: _Context, pair: Pair) -> bool:
    return any(
        begin != pair.invoke.index and begin < _end(pair) and end > pair.invoke.index
        for begin, end in context.takers.get(str(name), ())
    )


def _taken(context: _Context, pair: Pair) -> str | None:
    name = pair.invoke.value.get("new_name", pair.invoke.value.get("name"))
    if _others_at(name, context, pair):
        return None
    return f"no other operation could give a table the name {name!r}"


def _not_running(context: _Context, pair: Pair) -> str | None:
    name = pair.invoke.value.get("name")
    if _others_at(name, context, pair):
        return None
    return f"no client was creating a table {name!r}"


def _unplaceable(context: _Context, pair: Pair) -> str | None:
    if pair.invoke.f != "create":
        return "it creates no replicas"
    if context.may_lack_servers(pair) or pair.invoke.value.get("partitions", 1) > PARTITIONS_MAX:
        return None
    lacks_servers = pair.invoke.value.get("replicas", 1) > context.servers
    if lacks_servers or _too_many_replicas(pair, context.limits):
        return None
    return "nothing had kept a tablet server from contacting this master"


def _too_many_replicas(pair: Pair, limits: _Limits) -> bool:
    assert pair.completion is not None
    replicas = pair.invoke.value.get("replicas", 1)
    if str(pair.completion.error).startswith("TOO_MANY_TABLETS"):
        return bool(pair.invoke.value.get("partitions", 1) * replicas > limits.new_replicas)
    return bool(replicas > limits.replicas[1])


def _replicas(context: _Context, pair: Pair) -> str | None:
    least, most = context.limits.replicas
    if pair.invoke.f == "create":
        asked = pair.invoke.value.get("replicas")
        if not isinstance(asked, int) or asked % 2 == 0 or not least <= asked <= most:
            return None
    return "its replication factor is legal"


def _tablets(context: _Context, pair: Pair) -> str | None:
    if pair.invoke.f != "locate":
        return "it does not need a tablet"
    name = str(pair.invoke.value.get("name"))
    changes = context.changes.get(name, ())
    for begin, end in context.running.get(name, ()):
        if end < pair.invoke.index and not any(b < _end(pair) and e > begin for b, e in changes):
            return f"all tablets of {name!r} ran before, as op {begin} proves"
    return None


def _metastore(context: _Context, pair: Pair) -> str | None:
    if pair.invoke.f not in {"create", "rename", "delete"}:
        return "it does not need the metastore"
    assert pair.completion is not None
    # a fault may take effect up to a second before the harness records it
    early = pair.completion.time < context.disturbed_ns - 1e9
    return "nothing had disturbed the metastore" if early else None


TIMELESS: Final = (_never, _replicas)
"""The rules that depend only on the request. Stale state cannot excuse a violation of these rules.
"""
OBSERVATIONS: Final = {
    ("TABLE_NOT_FOUND", "NOT_FOUND"),
    ("TABLE_ALREADY_PRESENT", "ALREADY_PRESENT"),
}
RULES: Final[dict[tuple[str, str], Rule]] = {
    ("NOT_THE_LEADER", ""): _legal,
    ("CATALOG_MANAGER_NOT_INITIALIZED", ""): _legal,
    ("INVALID_SCHEMA", ""): _schema,
    ("TABLE_NOT_FOUND", "SERVICE_UNAVAILABLE"): _not_running,
    ("TABLE_ALREADY_PRESENT", "SERVICE_UNAVAILABLE"): _taken,
    ("REPLICATION_FACTOR_TOO_HIGH", ""): _unplaceable,
    ("TOO_MANY_TABLETS", ""): _unplaceable,
    ("EVEN_REPLICATION_FACTOR", ""): _replicas,
    ("ILLEGAL_REPLICATION_FACTOR", ""): _replicas,
    ("TABLET_NOT_RUNNING", ""): _tablets,
    ("HIVE_METASTORE_ERROR", ""): _metastore,
    ("UNKNOWN_ERROR", "INVALID_ARGUMENT"): _never,
}
