"""Operations, histories and verdicts: the lowest layer, which imports only `harness.errors`.

An `Op` is one line of a history, as in Jepsen. A client process *invokes* an operation and later
learns that it happened (`ok`), that it did not happen (`fail`), or neither (`info`). After `info`
the operation may take effect at any later time, and the process is retired. Each completion lists
the RPC `attempts` that were really sent, since a hidden retry ruins verdicts (KUDU-1537).

A history is self-contained. The harness also records its own observations as ops, so that every
checker is a pure function of a history, and stored runs can be checked again:

| process   | f              | value of the op (type is always `info`)                            |
|-----------|----------------|--------------------------------------------------------------------|
| "nemesis" | its name       | `{"action": "inject"|"heal", "fault": id, "targets", ...}`         |
| "harness" | phase          | `{"phase": "warm-up"|"chaos"|"heal-core"|...}`                     |
| "harness" | permits        | what the profile does not promise (`harness.permits`)              |
| "harness" | leader         | `{"node": name, "term": n}`: this node leads in this term          |
| "harness" | node-exit      | `{"node": name, "code": n, "expected": bool, "log": lines}`        |
| "harness" | live           | `{"ok": bool, "took_s": x, "bound_s": y, "missing": [f]}`          |
| "harness" | converged      | `{"ok": bool, "took_s": x, "bound_s": y, "pending": [text]}`       |
| "harness" | interrupted    | `{"phase": name}`: the user cut the workload short                 |
| "harness" | unread         | `{"count": n, "of": n, "bound_s": x}`: failed final reads          |
| "harness" | clock          | `{"wall_ns": n}`: the wall clock, which stamps logs of programs    |
| "harness" | log            | a message of a generator, or of a client that did not close        |
| "harness" | memory         | `{"bytes": {node: n or null}}`: memory of nodes at the end         |
| "harness" | snapshot       | the target's own dump of every node's state                        |
| "harness" | usage          | resource use of nodes now: `{quantity: {node: n or null}}`         |
| "harness" | unsafe-change  | an administrator overruled votes (`harness.verdict.unsafe_change`) |
| "harness" | divergence     | two replicas that announced different values for one index         |
| "harness" | checkpoints    | `{"told": n, "compared": n, ...}`: announcements, comparisons      |
| "harness" | frozen         | the violation that froze the run (`harness.run.freeze`)            |
| "harness" | heartbeat-gap  | `{"from_s": x, "to_s": y, "gap_s": z}`                             |
| "harness" | starvation     | `{"from_s": x, "to_s": y, "waited_s": {name: s}}`                  |
| "harness" | infrastructure | `{"node": name or null, "what": text}`                             |

* An inject op of the nemesis has the `kind` of its fault ("cut", "kill", "power-cut", "pause",
  "restart", "shape", "reset", or a plug-in's own word), which histories of older versions lack. It
  has `what`, the fault as a struct (`harness.nodes.faults`), if the nemesis injected a struct.
* A heal op of the nemesis has `"undone": true` if another actor ended or changed the fault earlier:
  the fault was not active for its whole time, and its `bite` is a lower bound.
* `node-exit` may say who ended the node: `"by": "nemesis"|"itself"|"host"|"unknown"`. "host" means
  the kernel's OOM killer, a signal that the harness did not send, or a lack of disk or ports.
* `leader` appears once for each node and term, so two nodes that lead one term both appear;
  `History.leaders` drops the second. Term 0 means a target without terms. With `"asked": true` no
  node announces leaders. The harness asked instead: at the set-up, each second, and when a fault
  chose its targets. It did not observe changes in between.
* `divergence` and `checkpoints`: the states that replicas announced during the run
  (`harness.run.divergence`).
* `heartbeat-gap`: the harness itself did not run during this time (stopped, or starved of CPU).
* `starvation`: there were too few processors. During this time these nodes (or the harness, or its
  link proxy) were ready to run for `waited_s` (at least half of a sampling period) but did not run.
* `infrastructure`: the engine, the host or the harness failed. The effect on the target is unknown,
  so this op never makes a verdict invalid, and results that depend on it become unknown. With
  `"lasts": true` the failure continues until the node's next `infrastructure` op with
  `"over": true`, or to the end. `"undid": "pause"` means that another actor ended the pause of the
  node. `"impostor": true` means that another program listens on a port of the node and may have
  answered in its place since the node last ended (`harness.verdict.unsafe_change`). `"full": true`
  means that the disk with the nodes' data has no room.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from harness.errors import HistoryError, UsageError, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ACTORS",
    "HARNESS",
    "NEMESIS",
    "NS_PER_MS",
    "NS_PER_S",
    "Attempt",
    "CheckResult",
    "Completion",
    "Counterexample",
    "History",
    "ModelSettings",
    "Op",
    "OpType",
    "Pair",
    "Pairing",
    "PartialOrder",
    "Process",
    "Request",
    "ScheduledOp",
    "Verdict",
    "digest_of",
    "encode_op",
    "error_code",
    "worst",
]

Process = int | str
NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NEMESIS: Final = "nemesis"
HARNESS: Final = "harness"
ACTORS: Final = (NEMESIS, HARNESS)
"""The harness's own processes, which have names. Checkers do not judge their operations."""

ERROR_CODE_CHARS_MAX: Final = 80


class OpType(enum.StrEnum):
    """The type of a line in a history."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One RPC that was really sent for an operation. Times are ns since the start of the run."""

    node: str
    start: int
    end: int
    outcome: str  # "ok", or the error as the client saw it, e.g. "NOT_THE_LEADER"


class _Asked(Protocol):
    f: ClassVar[str]

    def asked(self) -> Any: ...


class Request(msgspec.Struct, frozen=True):
    """One operation to invoke. `f` belongs to the workload's vocabulary."""

    f: str
    value: Any = None

    @classmethod
    def of(cls, call: _Asked) -> Request:
        """Return the request for a call of a vocabulary (`harness.vocabularies.Call`)."""
        return cls(call.f, call.asked())


class Completion(msgspec.Struct, frozen=True):
    """The result of one operation, classified by the client. `value` is plain JSON."""

    type: OpType
    value: Any = None
    error: str | None = None
    node: str | None = None
    attempts: tuple[Attempt, ...] = ()


class ScheduledOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One client operation at a fixed time after the start of the chaos phase."""

    at_ns: int
    process: int
    f: str
    value: Any = None


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a history.

    `time` is in ns since the start of the run. `value` is plain JSON data. `node` is the node that
    answered last. `error` is `CODE: text`, in the target's own words.
    """

    index: int
    time: int
    process: Process
    type: OpType
    f: str
    value: Any = None
    error: str | None = None
    node: str | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def is_client(self) -> bool:
        """Whether the op is a client's, and not the nemesis's or the harness's."""
        return not isinstance(self.process, str)


_encoder = msgspec.json.Encoder(order="sorted")


def error_code(error: str) -> str:
    """Return the code before the text of an `Op.error`. Reports group errors by this code."""
    return error.split(":", 1)[0].strip()[:ERROR_CODE_CHARS_MAX]


def encode_op(op: Op) -> bytes:
    """Return an op's canonical bytes: JSON with sorted keys. Equal ops have equal bytes."""
    return _encoder.encode(op)


class Pair(msgspec.Struct, frozen=True, gc=False):
    """An invocation and its completion. An operation that never ended has `None` as completion."""

    invoke: Op
    completion: Op | None

    @property
    def type(self) -> OpType:
        """The outcome `ok`, `fail` or `info`; `info` for an operation without completion."""
        return OpType.INFO if self.completion is None else self.completion.type


def digest_of(ops: Iterable[Op]) -> str:
    """Return the SHA-256 of the canonical bytes of these ops, as hex."""
    total = hashlib.sha256()
    for op in ops:
        total.update(encode_op(op))
        total.update(b"\n")
    return total.hexdigest()


class Pairing:
    """Reads a history op by op, and refuses a history that no real clients could produce.

    Client processes are numbers. A process with a name may write notes of type `info`. It cannot
    invoke or complete operations unless its name is in `ACTORS`, since no checker would judge them.

    Other harnesses reuse a process after its operation ended in `info`. In a `foreign` history this
    is allowed, and counted in `reused`. The operation that ended in `info` stays open, so a verdict
    can become weaker but never wrong.
    """

    def __init__(self, *, foreign: bool = False) -> None:
        self.reused = 0
        self._foreign = foreign
        self._previous = -1
        self._open: dict[Process, int] = {}
        self._retired: dict[Process, int] = {}

    def take(self, op: Op) -> None:
        """Check the next op. Raises a `HistoryError` about this op (see `History`)."""
        if op.index <= self._previous:
            raise HistoryError(
                f"op {op.index} follows op {self._previous}: indices must rise; "
                "sort the history by index or export it again"
            )
        self._previous = op.index
        process = op.process
        if isinstance(process, str):
            if process not in ACTORS and op.type is not OpType.INFO:
                raise HistoryError(
                    f"op {op.index}: the process {shown(process)} has a name and does {op.f!r} "
                    f"({op.type.value}) as a client does, but clients are numbers; give each "
                    f"client a number (only {', '.join(ACTORS)} and notes of type info have names)"
                )
            return
        if op.type is not OpType.INVOKE:
            if self._open.pop(process, None) is None:
                raise HistoryError(
                    f"op {op.index}: process {process} completes {op.f!r} without an open "
                    "invocation; the history lost its beginning or has a duplicate line"
                )
            if op.type is OpType.INFO:
                self._retired[process] = op.index
            return
        if process in self._open:
            raise HistoryError(
                f"op {op.index}: process {process} invokes {op.f!r} while its op "
                f"{self._open[process]} is still open; a process does one operation at a time"
            )
        if process in self._retired:
            self.reused += 1
        if process in self._retired and not self._foreign:
            raise HistoryError(
                f"op {op.index}: process {process} is used again after its op "
                f"{self._retired[process]} ended in info; give it a new process number"
            )
        self._open[process] = op.index


class History(Sequence[Op]):
    """An immutable sequence of ops in index order.

    Raises `HistoryError` when indices do not rise, a process has two operations open, a process is
    used again after `info`, a completion has no invocation, or a client has a name. The message
    names the op. A `foreign` history may reuse processes; `reused` counts how often.
    """

    def __init__(self, ops: Iterable[Op], *, foreign: bool = False) -> None:
        self._ops: tuple[Op, ...] = tuple(ops)
        self._pairs: tuple[Pair, ...] | None = None
        pairing = Pairing(foreign=foreign)
        for op in self._ops:
            pairing.take(op)
        self.reused = pairing.reused

    def __len__(self) -> int:
        return len(self._ops)

    def __iter__(self) -> Iterator[Op]:
        return iter(self._ops)

    def __getitem__(self, item: Any) -> Any:
        return self._ops[item]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._ops == other._ops

    def __hash__(self) -> int:
        return hash(self._ops)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The client operations, in the order of their invocations."""
        if self._pairs is None:
            completions: dict[int, Op] = {}
            open_at: dict[Process, int] = {}
            invokes: list[Op] = []
            for op in self._ops:
                if not op.is_client:
                    continue
                if op.type is OpType.INVOKE:
                    open_at[op.process] = op.index
                    invokes.append(op)
                else:
                    completions[open_at.pop(op.process)] = op
            self._pairs = tuple(Pair(op, completions.get(op.index)) for op in invokes)
        return self._pairs

    def of_process(self, process: str) -> Iterator[Op]:
        return (op for op in self._ops if op.process == process)

    def facts(self, f: str) -> Iterator[Op]:
        """Return the harness's ops with this `f` (see the table in the module's docstring)."""
        return (op for op in self.of_process(HARNESS) if op.f == f)

    def leaders(self) -> tuple[Op, ...]:
        """Return the `leader` ops that changed the leader: the first op of each newer term.

        A second leader of a term above 0 and a leader of an older term are left out. In term 0 (no
        terms), each change of the leader is kept. So are ops without a term, which foreign
        histories may have.
        """
        changes: list[Op] = []
        newest, holder = -1, None
        for op in self.facts("leader"):
            value = op.value if isinstance(op.value, dict) else {}
            term, node = value.get("term"), value.get("node")
            if isinstance(term, int):
                if term < newest or (term == newest and (term != 0 or node == holder)):
                    continue
                newest = term
            holder = node
            changes.append(op)
        return tuple(changes)

    def digest(self) -> str:
        """Return the SHA-256 of all ops' canonical bytes, as hex; equal for equal histories."""
        return digest_of(self._ops)

    def to_pandas(self) -> pd.DataFrame:
        """Return the client operations as a table for notebooks, one row per operation.

        docs/browse.md lists the columns. Raises `UsageError` if pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError(
                "to_pandas needs pandas: pip install 'catalog-harness[report]'"
            ) from error
        pairs = self.pairs
        done = [pair.completion for pair in pairs]
        finish = [None if op is None else op.time for op in done]
        length = [
            None if op is None else op.time - pair.invoke.time
            for pair, op in zip(pairs, done, strict=True)
        ]
        columns: dict[str, tuple[str, list[Any]]] = {
            "process": ("int64", [pair.invoke.process for pair in pairs]),
            "f": ("string", [pair.invoke.f for pair in pairs]),
            "type": ("string", [pair.type.value for pair in pairs]),
            "value": ("object", [pair.invoke.value for pair in pairs]),
            "answer": ("object", [None if op is None else op.value for op in done]),
            "error": ("string", [None if op is None else op.error for op in done]),
            "node": ("string", [None if op is None else op.node for op in done]),
            "invoke_ns": ("int64", [pair.invoke.time for pair in pairs]),
            "complete_ns": ("Int64", finish),
            "latency_ns": ("Int64", length),
            "attempts": ("int64", [0 if op is None else len(op.attempts) for op in done]),
            "invoke_index": ("int64", [pair.invoke.index for pair in pairs]),
            "complete_index": ("Int64", [None if op is None else op.index for op in done]),
        }
        return pd.DataFrame(
            {name: pd.Series(values, dtype=kind) for name, (kind, values) in columns.items()}
        )


class Verdict(enum.StrEnum):
    """The result of a check. `worst` merges results: valid < permitted < unknown < invalid.

    Permitted: the run broke only promises that its profile does not make (`harness.permits`).
    """

    VALID = "valid"
    PERMITTED = "permitted"
    UNKNOWN = "unknown"
    INVALID = "invalid"

    @property
    def rank(self) -> int:
        """The rank of the verdict, from 0 for valid to 3 for invalid."""
        return _RANK[self]

    @property
    def holds(self) -> bool:
        """Whether no promise was broken."""
        return self in {Verdict.VALID, Verdict.PERMITTED}


# `Verdict` lists its members from the best to the worst.
_RANK: Final = {verdict: rank for rank, verdict in enumerate(Verdict)}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of some verdicts; for none, `unknown`, because nothing was proven."""
    return max(verdicts, key=lambda verdict: verdict.rank, default=Verdict.UNKNOWN)


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one checker for one history.

    `reason` is one line. `explanation` has whole sentences for people, `operations` the indices of
    the offending ops in the history, and `details` more data for reports (plain JSON).
    """

    checker: str
    verdict: Verdict
    reason: str
    explanation: tuple[str, ...] = ()
    operations: tuple[int, ...] = ()
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `harness check` for a model. A model reads only the settings that it has a use
    for.

    The consistency models, anomalies and version orders are Elle's; without a consistency model,
    Elle's default applies. `independent` says whether values are `[key value]` tuples
    (`harness.independent`); with `None` the shape of the values decides. `initial` is the first
    value of an object, in the form of history values (nil is possible); `msgspec.UNSET` means the
    default of the model.
    """

    consistency_models: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    linearizable_keys: bool = False
    sequential_keys: bool = False
    wfr_keys: bool = False
    independent: bool | None = None
    initial: Any = msgspec.UNSET


class PartialOrder(msgspec.Struct, frozen=True):
    """One of the longest legal beginnings of a linearization.

    `steps` are the indices of its invocations. `states` describes the state after each of the last
    `len(states)` steps. `pending` are the operations that were open at its end.
    """

    steps: tuple[int, ...]
    states: tuple[str, ...]
    pending: tuple[int, ...] = ()


class Counterexample(msgspec.Struct, frozen=True):
    """The data from which the picture of an invalid history is drawn.

    All numbers are indices of invocations. `failing` is the first operation that cannot be
    linearized (`None` if no single operation is to blame). The operations of `core` contradict each
    other. `labels` describes operations.
    """

    failing: int | None
    core: tuple[int, ...]
    orders: tuple[PartialOrder, ...] = ()
    labels: dict[int, str] = msgspec.field(default_factory=dict)
