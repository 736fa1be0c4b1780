"""Random histories of all forms that a store may hold, for tests of the conversion into rows."""

from hypothesis import strategies as st

from harness.case import Case
from harness.ops import HARNESS, NEMESIS, Attempt, History, Op, OpType, Verdict
from harness.store import RunRecord
from results.lake.tables.sealed_run import About

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALAR = st.none() | st.booleans() | INT64 | FLOATS | TEXT
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = st.sampled_from([
    "name", "columns", "steps", "partitions", "at", "rows", "result", "revision", "table_id",
    "done", "column_ids", "tables", "value", "phase", "node", "term", "expected", "took_s", "rest",
])  # fmt: skip
TYPED = (
    TEXT | INT64 | st.booleans() | st.lists(TEXT, max_size=3) | st.lists(INT64, max_size=2)
    | st.lists(st.lists(TEXT, max_size=3), max_size=2)
)  # fmt: skip
VALUES = st.one_of(
    JSON,
    st.dictionaries(FIELDS, TYPED | JSON, max_size=5),
    st.fixed_dictionaries({"result": st.just("ok"), "revision": st.integers(0, 9)}),
    st.lists(SCALAR, min_size=2, max_size=2),
    st.lists(st.tuples(st.sampled_from(["r", "append"]), TEXT, JSON).map(list), max_size=2),
)
ERRORS = st.none() | st.sampled_from(
    ["TIMEOUT: no answer", "TIMEOUT", "TIMEOUT: ", ": no answer", "NOT_FOUND: no table"]
)
OUTCOMES = TEXT | st.sampled_from(
    ["ok", "TIMEOUT: no answer", "TIMEOUT: late", "TIMEOUT", "TIMEOUT: ", ": no answer"]
)
NODES = st.none() | st.sampled_from(["m1", "m2", "t1"])
TRIED = st.lists(
    st.builds(Attempt, st.sampled_from(["m1", "m2"]), INT64, INT64, OUTCOMES), max_size=3
).map(tuple)
RARELY = st.integers(0, 9).map(lambda n: n == 0)
KINDS = st.sampled_from(["create", "get", "read", "txn", "write"])


@st.composite
def faults(draw):
    """Draw the value of an op of the nemesis, usually in the normal form."""
    value = {
        "action": draw(st.sampled_from(["inject", "heal"])),
        "fault": draw(st.sampled_from(["kill-1", "kill-2", "cut+1"])),
        "targets": draw(st.lists(st.sampled_from(["m1", "t1", "a+b"]), max_size=2)),
    }
    if value["action"] == "inject":
        value |= {"kind": "kill", "note": draw(TEXT), "what": draw(JSON)}
    else:
        value["bite"] = draw(
            st.sampled_from([{"count": 3, "unit": "frames"}, {"count": None}, None])
        )
    for name in list(value):
        if draw(RARELY):
            value[name] = draw(JSON)
        elif draw(RARELY):
            del value[name]
    return value


@st.composite
def noted(draw):
    """Draw process, kind and value of an op of the nemesis or the harness."""
    if draw(st.booleans()):
        return NEMESIS, draw(st.sampled_from(["kill", "cut"])), draw(faults() | JSON)
    f = draw(
        st.sampled_from(["phase", "leader", "node-exit", "live", "usage", "memory", "snapshot"])
    )
    typed = st.fixed_dictionaries({
        "phase": st.sampled_from(["setup", "chaos"]), "node": TEXT, "term": st.integers(0, 3),
        "bytes": st.dictionaries(TEXT, st.none() | INT64, max_size=2),
    })  # fmt: skip
    if f == "snapshot":  # large, like real snapshots
        return HARNESS, f, {"masters": draw(JSON), "padding": "x" * 600}
    return HARNESS, f, draw(typed | JSON)


@st.composite
def histories(draw, *, keyed=False):
    """Draw any history; in a keyed history, values are [key, value]."""
    ops, index, time, open_ops, fresh = [], 0, 0, {}, 0
    for _ in range(draw(st.integers(0, 14))):
        index += draw(st.integers(1, 3))
        time += draw(st.integers(0, 5))
        odd = draw(RARELY)
        choice = draw(st.integers(0, 5))
        if choice == 0:
            process, f, value = draw(noted())
            kind = draw(st.sampled_from(OpType)) if odd else OpType.INFO
            extra = (draw(ERRORS), draw(NODES), draw(TRIED)) if odd else (None, None, ())
            ops.append(Op(index, time, process, kind, f, value, *extra))
        elif choice <= 3 or not open_ops:
            value = [draw(SCALAR), draw(VALUES)] if keyed else draw(VALUES)
            extra = (draw(ERRORS), draw(NODES), draw(TRIED)) if odd else (None, None, ())
            ops.append(Op(index, time, fresh, OpType.INVOKE, draw(KINDS), value, *extra))
            open_ops[fresh] = ops[-1]
            fresh += 1
        else:
            asked = open_ops.pop(draw(st.sampled_from(sorted(open_ops))))
            value = draw(VALUES)
            has_key = isinstance(asked.value, list) and len(asked.value) == 2
            if keyed or (has_key and draw(st.booleans())):
                value = [asked.value[0], value]
            kind = draw(st.sampled_from([OpType.OK, OpType.FAIL, OpType.INFO]))
            f = draw(KINDS) if odd else asked.f
            ops.append(
                Op(
                    index,
                    time,
                    asked.process,
                    kind,
                    f,
                    value,
                    draw(ERRORS),
                    draw(NODES),
                    draw(TRIED),
                )
            )
            if kind is not OpType.INFO and draw(st.booleans()):
                fresh = max(fresh, asked.process + 1)
    return History(ops)


def about(name="ddl-none", run="r1", /, *, digest="", label=None, **case):
    """Build the record of a finished valid run."""
    record = RunRecord(
        run=run, environment="sim", started="2026-01-02T03:04:05+00:00", wall_s=1.5,
        verdict=Verdict.VALID, digest=digest, ops=0, versions={"harness": "1"}, label=label,
    )  # fmt: skip
    return About(name=name, id=run, case=Case(seed=1, **case), record=record, label=label)
