"""Operations, histories and verdicts: the ground floor, which imports nothing of ours but errors.

An `Op` is one line of a history, after Jepsen's: a client process *invokes* something and later
learns that it happened (`ok`), did not happen (`fail`), or learns nothing (`info`: it may take
effect at any later time, and the process is retired). Under each completion lie the RPC
`attempts` that were really made, since a hidden retry ruins verdicts (KUDU-1537).

A history is self-contained. What the harness itself saw goes into it as ops as well, so that
every checker is a pure function of a history and a stored run can be checked again:

| process   | f           | value of the op (type is always `info`)                     |
|-----------|-------------|-------------------------------------------------------------|
| "nemesis" | its name    | `{"action": "inject"|"heal", "fault": id, "targets", ...}`   |
| "harness" | phase       | `{"phase": "warm-up"|"chaos"|"heal-core"|...}`               |
| "harness" | permits     | what the profile does not promise (`harness.permits`)        |
| "harness" | leader      | `{"node": name, "term": n}`: this node leads in this term    |
| "harness" | node-exit   | `{"node": name, "code": n, "expected": bool, "log": lines}`  |
| "harness" | live        | `{"ok": bool, "took_s": x, "bound_s": y, "missing": [f]}`    |
| "harness" | converged   | `{"ok": bool, "took_s": x, "bound_s": y, "pending": [text]}` |
| "harness" | interrupted | `{"phase": name}`: the user cut the workload short           |
| "harness" | unread      | final reads that were given up, and why                     |
| "harness" | clock       | `{"wall_ns": n}`: the wall clock, which stamps logs of programs |
| "harness" | log         | a message of a generator, or of a client that did not close |
| "harness" | memory      | `{"bytes": {node: n or null}}`: what nodes hold at the end   |
| "harness" | snapshot    | the target's own dump of every node's state                 |
| "harness" | usage       | what each node uses now, as `{quantity: {node: n or null}}`   |
| "harness" | unsafe-change  | an administrator overruled votes (`harness.verdict.unsafe_change`) |
| "harness" | divergence  | two replicas that told of one place differently             |
| "harness" | checkpoints | `{"told": n, "compared": n, ...}`: how much was compared     |
| "harness" | heartbeat-gap  | `{"from_s": x, "to_s": y, "gap_s": z}`                    |
| "harness" | starvation     | `{"from_s": x, "to_s": y, "waited_s": {name: s}}`         |
| "harness" | infrastructure | `{"node": name or null, "what": text}`                    |

* An inject op of the nemesis has the `kind` of its fault ("cut", "kill", "power-cut", "pause",
  "restart", "shape", "reset", or a plug-in's own word), which histories of older versions lack, and
  `what`, the fault as a struct (`harness.nodes.faults`), if it was injected as one.
* A heal op of the nemesis has `"undone": true` if another actor ended or changed the fault earlier:
  it did not bite for its whole time, and its `bite` is a lower bound.
* `node-exit` may say who ended it: `"by": "nemesis"|"itself"|"host"|"unknown"`. "host" means
  the kernel's OOM killer, a signal that the harness did not send, or a lack of disk or ports.
* `leader` appears once for each node and term, so two nodes that lead one term both appear;
  `History.leaders` is the usual reading. Term 0 means a target without terms. With
  `"asked": true` no node announces leaders: the harness asked, at the set-up, each second, and when
  a fault took aim, and did not observe changes in between.
* `divergence` and `checkpoints`: what replicas announced along the run (`harness.run.divergence`).
* `heartbeat-gap`: the harness itself did not run in this time (stopped, or starved of CPU).
* `starvation`: there were too few processors. In this time these nodes (or the harness, or its link
  proxy) were ready to run for `waited_s`, at least for half of a look, and did not run.
* `infrastructure`: the engine, the host or the harness failed. Its effect on the target is unknown,
  so it never convicts and makes dependent results unknown. With `"lasts": true` it continues until
  the next one of the node with `"over": true`, or to the end. `"undid": "pause"` means that another
  actor ended the pause of the node, `"impostor": true` that another program listens on a port of
  the node and may have answered for it since the node last ended (`harness.verdict.unsafe_change`).
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
NEMESIS: Final = "nemesis"
HARNESS: Final = "harness"
ACTORS: Final = (NEMESIS, HARNESS)
"""The processes with names. They are no clients, and checkers do not judge their operations."""

ERROR_CODE_CHARS_MAX: Final = 80


class OpType(enum.StrEnum):
    """The state of an operation in a line of a history."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One RPC really sent under an operation. Times are ns since the start of the run."""

    node: str
    start: int
    end: int
    outcome: str  # "ok", or the error as the client saw it, e.g. "NOT_THE_LEADER"


class _Asked(Protocol):
    f: ClassVar[str]

    def asked(self) -> Any: ...


class Request(msgspec.Struct, frozen=True):
    """One operation to invoke. `f` is in the workload's vocabulary."""

    f: str
    value: Any = None

    @classmethod
    def of(cls, call: _Asked) -> Request:
        """The request of a call in a vocabulary (`harness.vocabularies.Call`)."""
        return cls(call.f, call.asked())


class Completion(msgspec.Struct, frozen=True):
    """The end of one operation, classified by the client; `value` is plain JSON."""

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

    `time` is in ns since the start of the run; `value` is plain JSON data; `node` is the node that
    answered last; `error` is `CODE: text` in the target's own words.
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
        """Whether a client process did this, not the nemesis or the harness; see `Pairing`."""
        return not isinstance(self.process, str)


_encoder = msgspec.json.Encoder(order="sorted")


def error_code(error: str) -> str:
    """The code before the text of an `Op.error`, so that kinds of errors stay few."""
    return error.split(":", 1)[0].strip()[:ERROR_CODE_CHARS_MAX]


def encode_op(op: Op) -> bytes:
    """The canonical bytes of an op: JSON with sorted keys. Equal ops have equal bytes."""
    return _encoder.encode(op)


class Pair(msgspec.Struct, frozen=True, gc=False):
    """An invocation with its completion; `None` where the operation was still open at the end."""

    invoke: Op
    completion: Op | None

    @property
    def type(self) -> OpType:
        """`ok`, `fail` or `info`; an operation without completion is `info`."""
        return OpType.INFO if self.completion is None else self.completion.type


def digest_of(ops: Iterable[Op]) -> str:
    """SHA-256 over the canonical bytes of some ops, as hex."""
    total = hashlib.sha256()
    for op in ops:
        total.update(encode_op(op))
        total.update(b"\n")
    return total.hexdigest()


class Pairing:
    """Follows a history op by op, and refuses one that no set of clients can have made.

    Clients are numbers. A named process may leave notes of type `info`. Its invocations and
    completions are refused, unless it is one of `ACTORS`: no checker would judge them.

    Other harnesses use a process again after its operation ended in `info`. In a `foreign` history
    that is only counted, as `reused`: the operation stays open, which proves less and never more.
    """

    def __init__(self, *, foreign: bool = False) -> None:
        self.reused = 0
        self._foreign = foreign
        self._previous = -1
        self._open: dict[Process, int] = {}
        self._retired: dict[Process, int] = {}

    def take(self, op: Op) -> None:
        """Check the next op; raises `HistoryError` that names it (see `History`)."""
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
    used again after `info`, a completion has no invocation, or a client has a name (it names the
    op). A `foreign` one may use processes again; `reused` says how often it did.
    """

    def __init__(self, ops: Iterable[Op], *, foreign: bool = False) -> None:
        """Validate and keep `ops`."""
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
        """Client operations, in the order of their invocations."""
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
        """The ops of `NEMESIS` or `HARNESS`."""
        return (op for op in self._ops if op.process == process)

    def facts(self, f: str) -> Iterator[Op]:
        """The facts of the harness under `f` (see the module's table)."""
        return (op for op in self.of_process(HARNESS) if op.f == f)

    def leaders(self) -> tuple[Op, ...]:
        """The `leader` facts that changed the leader: the first of each later term.

        Left out are a second leader of one term and one of an older term. A foreign history may
        hold facts without a term; these are kept.
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
        """SHA-256 over the canonical bytes of all ops, as hex: equal histories, equal digests."""
        return digest_of(self._ops)

    def to_pandas(self) -> pd.DataFrame:
        """The client operations as a table for notebooks, a row each; docs/browse.md lists columns.

        Raises `UsageError` where pandas is not installed.
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
    """The result of a check. Merge with `worst`: valid < permitted < unknown < invalid.

    Permitted: only promises that the profile of the run does not make were broken
    (`harness.permits`).
    """

    VALID = "valid"
    PERMITTED = "permitted"
    UNKNOWN = "unknown"
    INVALID = "invalid"

    @property
    def rank(self) -> int:
        """0 for valid, up to 3 for invalid."""
        return _RANK[self]

    @property
    def holds(self) -> bool:
        """Whether it is proven that no promise was broken."""
        return self in {Verdict.VALID, Verdict.PERMITTED}


_RANK: Final = {verdict: rank for rank, verdict in enumerate(Verdict)}  # in order of dominance


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The dominating verdict; of none at all it is `unknown`, since nothing was proven."""
    return max(verdicts, key=lambda verdict: verdict.rank, default=Verdict.UNKNOWN)


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one checker over one history.

    `reason` is one line; `explanation` holds whole sentences for people, `operations` the indices
    of the offending ops in the history, `details` more data for reports (plain JSON).
    """

    checker: str
    verdict: Verdict
    reason: str
    explanation: tuple[str, ...] = ()
    operations: tuple[int, ...] = ()
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `harness check` for a model; each model takes its own.

    The consistency models, anomalies and version orders are Elle's; without a consistency model
    its default is checked.
    `independent` says whether values are `[key value]` tuples (`harness.independent`); with `None`
    their shape decides. `initial` is the first value of an object as in histories, nil included;
    `msgspec.UNSET` means the default of the model.
    """

    consistency_models: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    linearizable_keys: bool = False
    sequential_keys: bool = False
    wfr_keys: bool = False
    independent: bool | None = None
    initial: Any = msgspec.UNSET


class PartialOrder(msgspec.Struct, frozen=True):
    """A longest legal beginning of a linearization: indices of invocations, in order.

    `states` describes the state after each of the last `len(states)` steps; `pending` are
    operations that were open where it ends.
    """

    steps: tuple[int, ...]
    states: tuple[str, ...]
    pending: tuple[int, ...] = ()


class Counterexample(msgspec.Struct, frozen=True):
    """Data for a picture of an invalid history; all numbers are indices of invocations.

    `failing` is the first operation that fits nowhere (`None` if no single one is to blame);
    the operations of `core` contradict each other; `labels` describes operations.
    """

    failing: int | None
    core: tuple[int, ...]
    orders: tuple[PartialOrder, ...] = ()
    labels: dict[int, str] = msgspec.field(default_factory=dict)
