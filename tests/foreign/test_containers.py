"""Jepsen's models mutex, set, queue and unordered-queue, compared with all possible orders."""

import itertools
import random

import pytest

from checkers.linearizability import Result, certify, check_operations, observations
from checkers.linearizability.native import SWITCH, is_native
from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_USAGE, EXIT_VALID, HistoryError
from harness.formats import model_for, open_history
from harness.ops import History, ModelSettings, Op, OpType, Verdict
from harness.registry import load_plugin
from tests.support.histories import judged_by
from tests.support.histories import parsed as ops

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


CASES = [
    ("mutex", "0! acquire; 0+ acquire; 0! release; 0+ release; 1! acquire; 1+ acquire", VALID),
    ("mutex", "0! acquire; 0+ acquire; 1! acquire; 1+ acquire", INVALID),
    ("mutex", "0! release; 0+ release", INVALID),
    ("mutex", "0! acquire; 0+ acquire; 1! acquire; 1- acquire; 1! release; 1+ release", VALID),
    ("mutex", "0! acquire; 0? acquire; 1! acquire; 1+ acquire", VALID),
    ("mutex", "0! acquire; 0+ acquire; 1! release; 1? release; 2! acquire; 2+ acquire", VALID),
    ("mutex", "0! acquire 'a'; 0+ acquire 7; 1! release 'b'; 1+ release", VALID),
    ("set", "0! add 1; 0+ add 1; 1! read; 1+ read [1]", VALID),
    ("set", "0! add 1; 0+ add 1; 1! read; 1+ read []", INVALID),
    ("set", "0! add 1; 0- add 1; 1! read; 1+ read [1]", INVALID),
    ("set", "0! add 1; 0? add 1; 1! read; 1+ read [1]; 1! read; 1+ read []", INVALID),
    ("set", "0! add 1; 0? add 1; 1! read; 1+ read []; 1! read; 1+ read [1]", VALID),
    ("set", "0! add 1; 1! read; 1? read; 2! read; 2+ read [1]; 0+ add 1", VALID),
    ("set", "1! read; 1+ read [1]; 0! add 1; 0? add 1", INVALID),
    ("set", "0! add 1; 0+ add 1; 1! read; 1+ read [1, 1]", INVALID),
    ("set", "0! add ['k', 1]; 0+ add ['k', 1]; 1! read; 1+ read [['k', 1]]", VALID),
    ("set", "0! add 1; 0+ add 1; 0! add '1'; 0+ add '1'; 1! read; 1+ read [1]", INVALID),
    # 1 and True are equal in Python
    (
        "set",
        "0! add 1; 0+ add 1; 1! read; 1+ read [True]",
        INVALID,
    ),
    ("set", "0! add 1; 0+ add 1; 1! read; 1+ read [1.0]", INVALID),
    ("set", "0! add {'a': [1]}; 0+ add {'a': [1]}; 1! read; 1+ read [{'a': [1.0]}]", INVALID),
    ("set", "0! add [1, None]; 0+ add [1, None]; 1! read; 1+ read {'#{}': [[1, None]]}", VALID),
    ("queue", "0! enq True; 0+ enq True; 1! deq; 1+ deq 1", INVALID),
    ("unordered-queue", "0! enq 1.5; 0+ enq 1.5; 1! deq; 1+ deq 1.5", VALID),
    ("set", "0! add 1; 0+ add 1; 0! remove 1; 0+ remove 1; 1! read; 1+ read []", VALID),
    ("set", "0! add 1; 0? add 1; 1! remove 1; 1? remove 1; 2! read; 2+ read [1]", VALID),
    ("queue", "0! enq 1; 0+ enq 1; 0! enq 2; 0+ enq 2; 1! deq; 1+ deq 1", VALID),
    ("queue", "0! enq 1; 0+ enq 1; 0! enq 2; 0+ enq 2; 1! deq; 1+ deq 2", INVALID),
    ("queue", "0! enq 1; 0? enq 1; 2! enq 2; 2+ enq 2; 1! deq; 1+ deq 2", VALID),
    ("queue", "0! enq 1; 1! enq 2; 1+ enq 2; 0+ enq 1; 1! deq; 1+ deq 2", VALID),
    ("queue", "0! deq; 0+ deq", VALID),
    # nothing was observed
    (
        "queue",
        "0! deq; 0- deq; 0! enq 1; 0+ enq 1; 0! deq; 0- deq",
        UNKNOWN,
    ),
    ("queue", "0! deq; 0- deq", VALID),  # the failed dequeue had no effect
    ("queue", "0! enq 1; 0+ enq 1; 0! deq; 0? deq", UNKNOWN),
    ("unordered-queue", "0! enq 1; 0+ enq 1", UNKNOWN),
    ("unordered-queue", "0! deq; 0+ deq", VALID),  # the answer says that it was empty
    ("set", "0! add 1; 0+ add 1; 0! remove 1; 0+ remove 1; 0! read", UNKNOWN),
    ("set", "0! read; 0+ read []", VALID),
    ("mutex", "0! acquire; 0? acquire", UNKNOWN),
    ("mutex", "0! acquire; 0+ acquire", VALID),
    ("queue", "0! enq 1; 0+ enq 1; 0! deq; 0+ deq", INVALID),
    ("queue", "0! enq 1; 0+ enq 1; 1! deq; 1? deq; 0! deq; 0+ deq", VALID),
    ("queue", "0! deq; 0+ deq 1", INVALID),
    ("queue", "0! enq 1; 0? enq 1; 1! deq; 1+ deq 1; 1! deq; 1+ deq 1", INVALID),
    (
        "queue",  # the second 1 was added after the first was removed
        "0! enq 1; 0? enq 1; 1! enq 1; 2! deq; 2+ deq 1; 2! enq 2; 2+ enq 2; "  # noqa: ISC004
        "2! deq; 2+ deq 2; 2! deq; 2+ deq 1",
        VALID,
    ),
    ("queue", "0! enq; 0+ enq 1; 1! deq; 1+ deq 1", VALID),
    ("unordered-queue", "0! enq 1; 0+ enq 1; 0! enq 2; 0+ enq 2; 1! deq; 1+ deq 2", VALID),
    ("unordered-queue", "0! enq 1; 0+ enq 1; 1! deq; 1+ deq 1; 1! deq; 1+ deq 1", INVALID),
    ("unordered-queue", "0! enq 1; 0+ enq 1; 1! deq; 1? deq; 2! deq; 2+ deq 1", VALID),
    ("unordered-queue", "0! enq 1; 0+ enq 1; 2! deq; 2+ deq", INVALID),
    ("unordered-queue", "0! enq 1; 0+ enq 1; 1! deq; 1? deq; 2! deq; 2+ deq", VALID),
]


@pytest.mark.parametrize(("model", "text", "verdict"), CASES)
def test_verdicts(model, text, verdict):
    result, drawn = judged_by(model, ops(text))
    assert result.verdict is verdict
    assert (drawn is not None) is (verdict is INVALID)


@pytest.mark.parametrize(
    ("model", "text", "words"),
    [
        ("mutex", "0! lock", "op 0 is 'lock' with the value None; the model mutex accepts acq"),
        ("mutex", "0! acquire; 0+ release", "op 1 is 'release'"),
        ("set", "0! add", "op 0 is 'add'"),
        ("set", "0! read; 0+ read 3", "op 1 is 'read'"),
        ("set", "0! read; 0+ read", "op 1 is 'read'"),
        ("set", "0! read; 0+ read [None]", "op 1 is 'read'"),
        ("queue", "0! enqueue", "op 0 is 'enqueue'"),
        ("queue", "0! drain; 0+ drain [1]", "op 1 is 'drain'"),
        ("unordered-queue", "0! peek; 0+ peek 1", "op 1 is 'peek'.*unordered-queue accepts"),
    ],
)
def test_what_is_not_in_the_vocabulary_is_refused(model, text, words):
    with pytest.raises(HistoryError, match=words):
        judged_by(model, ops(text))


# --- an oracle that is independent of the checkers ---------------------------------------------


class Lock:
    @staticmethod
    def after(held, f, value, known):
        if f == "acquire":
            return [] if held else [True]
        return [False] if held else []


class Elements:
    @staticmethod
    def after(held, f, value, known):
        if f == "read":
            return [held] if not known or sorted(held) == sorted(value) else []
        return [held | {value}] if f == "add" else [held - {value}]


class Fifo:
    @staticmethod
    def after(held, f, value, known):
        if f == "enqueue":
            return [(*held, value)]
        if not held:
            return [held] if not known or value is None else []
        return [held[1:]] if not known or held[0] == value else []


class Bag:
    @staticmethod
    def after(held, f, value, known):
        if f == "enqueue":
            return [tuple(sorted((*held, value)))]
        if not held:
            return [held] if not known or value is None else []
        wanted = (
            range(len(held)) if not known else [n for n in range(len(held)) if held[n] == value]
        )
        return [held[:n] + held[n + 1 :] for n in wanted]


KINDS = {
    "mutex": (Lock, False, (("acquire",), ("release",))),
    "set": (Elements, frozenset(), (("add", 1), ("add", 2), ("add", 3), ("read",), ("read",))),
    "set, with removes": (Elements, frozenset(), (("add", 1), ("remove", 1), ("read",))),
    "queue": (Fifo, (), (("enqueue", 1), ("enqueue", 2), ("dequeue",), ("dequeue",))),
    "unordered-queue": (Bag, (), (("enqueue", 1), ("enqueue", 2), ("dequeue",), ("dequeue",))),
}


def explained(kind, history):
    """Whether some legal order contains all answered operations and some of the lost ones."""
    model, initial, _ = KINDS[kind]
    open_, found = {}, []
    for op in history:
        if op.type is OpType.INVOKE:
            open_[op.process] = op
        elif op.type is not OpType.INFO:
            call = open_.pop(op.process)
            if op.type is OpType.OK:
                found.append((call.index, op.index, op.f, op.value))
    lost = [(op.index, None, op.f, op.value) for op in open_.values()]
    seen = set()

    def search(states, left):
        key = (states, left)
        if not states or key in seen:
            return False
        if all(end is None for _, end, _, _ in left):
            return True
        seen.add(key)
        first = min(end for _, end, _, _ in left if end is not None)
        for one in left:
            call, end, f, value = one
            if call <= first:
                # A lost mutation that is impossible in this state has no effect.
                after = {a for s in states for a in model.after(s, f, value, end is not None)}
                if search(frozenset(after), left - {one}):
                    return True
        return False

    return search(frozenset([initial]), frozenset((*found, *lost)))


def random_history(kind, rng):
    """Return a history of a few clients, with answers from one state. Some are corrupted."""
    model, state, calls = KINDS[kind]
    states = [state]
    lines, open_, process = [], {}, 3
    clients = [0, 1, 2]
    fresh = itertools.count(1)
    for _ in range(rng.randint(4, 16)):
        slot = rng.randrange(3)
        who = clients[slot]
        if who not in open_:
            f, *value = rng.choice(calls)
            given = value[0] if value else None
            if given is not None and rng.random() < 0.6:
                given = next(fresh)
            open_[who] = (f, given)
            lines.append((who, OpType.INVOKE, f, given))
            continue
        f, given = open_.pop(who)
        kind_ = rng.choices([OpType.OK, OpType.INFO, OpType.FAIL], [7, 2, 1])[0]
        answer = given
        if f == "read":
            answer = tuple(sorted(states[0]))
        elif f == "dequeue":
            answer = states[0][0] if states[0] else None
        if rng.random() < 0.4 and f in {"read", "dequeue"}:
            answer = rng.choice([(), (1,), (1, 2)]) if f == "read" else rng.choice([None, 1, 2])
        happens = kind_ is OpType.OK or (kind_ is OpType.INFO and rng.random() < 0.5)
        after = model.after(states[0], f, answer, True) if happens else states
        if kind_ is OpType.OK and not after and rng.random() < 0.5:
            kind_, after = OpType.FAIL, states
        states = after or states
        if kind_ is OpType.INFO:
            clients[slot], process = process, process + 1
        lines.append((who, kind_, f, answer if kind_ is OpType.OK else given))
    return [Op(n, n, who, kind, f, value) for n, (who, kind, f, value) in enumerate(lines)]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_random_histories_agree_with_all_orders(kind, native, monkeypatch):
    if native and not is_native():
        pytest.skip("no native core")
    monkeypatch.setenv(SWITCH, str(int(native)))
    model = kind.split(",")[0]
    verdicts = []
    for seed in range(150):
        history = random_history(kind, random.Random(f"{kind} {seed}"))
        expected = VALID if explained(kind, history) else INVALID
        given = History(
            Op(op.index, op.time, op.process, op.type, op.f, list(op.value))
            if isinstance(op.value, tuple)
            else op
            for op in history
        )
        check = load_plugin("checkers", model).prepare(given, ModelSettings())
        verdict = check.check(time_limit_s=300, draw=False)[0].verdict
        seen = observations(check.model, check.parsed) or all(p.type == "fail" for p in given.pairs)
        assert verdict is (expected if seen else UNKNOWN), (seed, history)
        # without observations there is no contradiction
        assert seen or expected is VALID, (
            seed,
            history,
        )
        verdicts.append(expected)
        if seed % 4 == 0:
            outcome = check_operations(check.model, check.parsed)
            certify(check.model, check.parsed, outcome)  # raises an error if the proof is wrong
        for part in check.model.projections(check.parsed):
            refuted = check_operations(part.model, part.operations).result is Result.ILLEGAL
            assert not refuted or expected is INVALID, (seed, part.name)
    assert 10 < verdicts.count(INVALID) < 140


def test_many_lost_adds_and_one_read_are_decided():
    lost = "; ".join(f"{n}! add {n}; {n}? add {n}" for n in range(60))
    seen = list(range(0, 60, 2))
    assert judged_by("set", ops(f"{lost}; 90! read; 90+ read {seen}"))[0].verdict is VALID
    wrong = f"{lost}; 90! read; 90+ read {seen}; 90! read; 90+ read {seen[1:]}"
    assert judged_by("set", ops(wrong))[0].verdict is INVALID


def test_reads_tell_which_open_adds_came_first():
    calls = "; ".join(f"{n}! add {n}" for n in range(24))
    returns = "; ".join(f"{n}+ add {n}" for n in range(24))
    reads = "; ".join(f"9{n}! read; 9{n}+ read {list(range(n))}" for n in (6, 12, 18))
    result, _ = judged_by("set", ops(f"{calls}; {reads}; {returns}"))
    assert result.verdict is VALID
    assert result.details["steps"] < 5_000


def test_an_unordered_queue_is_checked_element_by_element():
    text = "; ".join(f"{n}! enqueue {n}; {n + 1000}! dequeue; {n}+ enqueue {n}" for n in range(200))
    text += "; " + "; ".join(f"{n + 1000}+ dequeue {199 - n}" for n in range(200))
    result, _ = judged_by("unordered-queue", ops(text))
    assert result.verdict is VALID
    assert result.details["steps"] < 2_000


def test_the_command_reads_them_and_suggests_obvious_models(tmp_path, capsys):
    path = tmp_path / "h.edn"
    line = "{{:process {}, :type :{}, :f :{}, :value {}}}\n".format
    path.write_text(line(0, "invoke", "acquire", "nil") + line(0, "ok", "acquire", "nil"))
    assert model_for("jepsen-edn", open_history(path)) == "mutex"
    assert main(["check", str(path)]) == EXIT_VALID
    path.write_text(line(0, "invoke", "read", "nil") + line(0, "ok", "read", "#{1}"))
    assert main(["check", str(path), "--model", "set", "--html", str(tmp_path)]) == EXIT_INVALID
    assert "read -> {1}" in capsys.readouterr().out
    path.write_text(line(0, "invoke", "add", "1") + line(1, "invoke", "read", "nil"))
    assert model_for("jepsen-edn", open_history(path)) == "set"
    path.write_text(line(0, "invoke", "enqueue", "nil"))
    assert main(["check", str(path), "--model", "queue"]) == EXIT_USAGE
    assert "line 1, column 1: op 0 is 'enqueue'" in capsys.readouterr().err
