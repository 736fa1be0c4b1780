"""Random histories with any number of processes. Their times may run backwards."""

from hypothesis import strategies as st

from harness.ops import HARNESS, NEMESIS, Attempt, History, Op, OpType

NODES = ("m1", "m2", "m3")
CLIENTS = 6
KINDS = st.sampled_from(["get", "list", "create"])
VALUES = st.none() | st.fixed_dictionaries(
    {"name": st.sampled_from(["t1", "t2", "<b>", "é"]), "n": st.integers(0, 3)}
)
ERRORS = st.sampled_from([None, "E: x", "</script>"])


@st.composite
def histories(draw, *, backwards=True):
    """Draw a history with events of clients, the nemesis and the harness, all close in time."""
    count = draw(st.integers(0, 25))
    steps = st.integers(-3 if backwards else 0, 60)
    time, ops, open_calls, clients = 0, [], set(), {slot: slot for slot in range(CLIENTS)}
    for index in range(count):
        time = max(0, time + draw(steps))
        kind = draw(st.sampled_from(["client"] * 5 + ["nemesis", "leader", "phase", "exit"]))
        if kind == "client":
            slot = draw(st.integers(0, CLIENTS - 1))
            process, value = clients[slot], draw(VALUES)
            if process not in open_calls:
                open_calls.add(process)
                ops.append(Op(index, time, process, OpType.INVOKE, draw(KINDS), value))
            else:
                f = next(op.f for op in reversed(ops) if op.process == process)
                type_ = draw(st.sampled_from([OpType.OK, OpType.FAIL, OpType.INFO]))
                # after `info`, another process takes over, as in the interpreter
                if type_ is OpType.INFO:
                    clients[slot] += CLIENTS
                open_calls.remove(process)
                attempts = tuple(draw(st.lists(attempt(time), max_size=3)))
                more = draw(ERRORS), draw(st.sampled_from([None, "m1", "<i>"])), attempts
                ops.append(Op(index, time, process, type_, f, value, *more))
        elif kind == "nemesis":
            value = {
                "action": draw(st.sampled_from(["inject", "heal"])),
                "fault": draw(st.sampled_from(["f1", "f2"])),
                "targets": draw(st.sampled_from([[], ["m1"], ["m1", "m2"]])),
            }
            ops.append(Op(index, time, NEMESIS, OpType.INFO, "kill", value))
        else:
            values = {
                "leader": {"node": "m2", "term": index},
                "phase": {"phase": "chaos"},
                "exit": {"node": "m9", "expected": draw(st.booleans())},
            }
            f = "node-exit" if kind == "exit" else kind
            ops.append(Op(index, time, HARNESS, OpType.INFO, f, values[kind]))
    return History(ops)


def attempt(around):
    """Draw an RPC near a time; it may outlast its operation, or overlap another RPC."""
    return st.builds(
        lambda node, start, length: Attempt(
            node, max(0, around - start), max(0, around - start) + length, "ok"
        ),
        st.sampled_from(NODES),
        st.integers(0, 50),
        st.integers(0, 60),
    )
