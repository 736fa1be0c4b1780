"""A writer of histories by hand: `h.ok(0, "create", {...}, {...})`."""

import re
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Self

from harness.ops import HARNESS, NEMESIS, History, ModelSettings, Op, OpType, Process
from harness.registry import load_plugin

MS = 1_000_000


class Writer:
    """A writer that appends ops; time advances by one millisecond per line."""

    def __init__(self) -> None:
        self.lines: list[Op] = []
        self._shift = 0

    def play(self, steps: Iterable[Callable[[Any], Any]]) -> Self:
        """Write these steps, such as `methodcaller("get", 1, "a", None)`."""
        for step in steps:
            step(self)
        return self

    def at(self, time_ms: int) -> None:
        """Set the time of the next op; the ops after it continue from there."""
        self._shift = time_ms - len(self.lines)

    def add(
        self,
        process: Process,
        kind: OpType,
        f: str,
        value: Any,
        node: str | None = None,
        **more: Any,
    ) -> int:
        index = len(self.lines)
        self.lines.append(
            Op(index, (index + self._shift) * MS, process, kind, f, value, node=node, **more)
        )
        return index

    def call(self, process: int, f: str, value: Any = None) -> int:
        return self.add(process, OpType.INVOKE, f, value or {})

    def ret(self, process: int, kind: OpType, value: Any = None, node: str = "m1") -> int:
        f = next(op.f for op in reversed(self.lines) if op.process == process)
        return self.add(process, kind, f, value, node)

    def ok(self, process: int, f: str, value: Any = None, answer: Any = None) -> int:
        index = self.call(process, f, value)
        self.ret(process, OpType.OK, {"result": "ok", **(answer or {})})
        return index

    def fail(self, process: int, f: str, value: Any, result: str | None) -> int:
        index = self.call(process, f, value)
        self.ret(process, OpType.FAIL, None if result is None else {"result": result})
        return index

    def lost(self, process: int, f: str, value: Any) -> int:
        index = self.call(process, f, value)
        self.add(process, OpType.INFO, f, None, error="TIMED_OUT: no answer")
        return index

    def fact(self, f: str, value: Any) -> int:
        return self.add(HARNESS, OpType.INFO, f, value)

    def nemesis(self, f: str, value: Any) -> int:
        return self.add(NEMESIS, OpType.INFO, f, value)

    # --- the vocabulary "ddl" ----------------------------------------------------------------

    def create(self, process: int, name: str, ident: str, **more: Any) -> int:
        call = {"name": name, "nonce": f"n-{ident}", "columns": ["a"]}
        return self.ok(process, "create", call, {"table_id": ident, "schema_version": 0, **more})

    def delete(self, process: int, name: str, ident: str, version: int = 0, **more: Any) -> int:
        call = {"name": name, "nonce": f"d-{ident}"}
        return self.ok(
            process, "delete", call, {"table_id": ident, "schema_version": version, **more}
        )

    def get(self, process: int, name: str, ident: str | None, version: int = 0, **more: Any) -> int:
        if ident is None:
            return self.ok(process, "get", {"name": name}, {"result": "not-found", **more})
        answer = {
            "table_id": ident,
            "schema_version": version,
            "applied_schema_version": version,
            "columns": ["a"],
            "comment": f"n-{ident}",
        }
        return self.ok(process, "get", {"name": name}, {**answer, **more})

    @property
    def history(self) -> History:
        return History(self.lines)


TYPES = {"!": OpType.INVOKE, "+": OpType.OK, "-": OpType.FAIL, "?": OpType.INFO}


def written(*lines: Any) -> list[Op]:
    """Build a history from lines (process and type, f, value[, error]), like ("0!", "write", 1)."""
    return [
        Op(index, index, int(who[:-1]), TYPES[who[-1]], f, value, *error)
        for index, (who, f, value, *error) in enumerate(lines)
    ]


SHORT = {"enq": "enqueue", "deq": "dequeue"}


def parsed(text: str) -> list[Op]:
    """Parse text like `0! add 1; 0+ add 1`: process and type, f, and a Python value.

    A step without a type is a whole operation that succeeds: `0 add 1` is short for the two lines
    above, and `1 read -> [1]` for `1! read; 1+ read [1]`. An operation with another end has both
    types, such as `0!? add 1`.
    """
    lines = []
    for step in text.split(";"):
        who, f, *rest = step.split(None, 2)
        asked, arrow, answer = "".join(rest).partition("->")
        process = who.rstrip("".join(TYPES))
        for kind in who.removeprefix(process) or "!+":
            value = answer if arrow and kind != "!" else asked
            lines.append((process + kind, SHORT.get(f, f), eval(value) if value else None))
    return written(*lines)


def table(text: str, **named: str) -> list[list[str]]:
    """Read rows like `0 add 1; 1 read -> [] => invalid lost`: a history and the words after it.

    A word in capital letters stands for the steps with that name. A history may take several lines,
    and a `#` begins a comment.
    """
    rows, history = [], ""
    for line in re.sub(r"^ *#.*| # .*", "", text, flags=re.MULTILINE).splitlines():
        steps, arrow, words = line.partition("=>")
        history += " " + steps.strip()
        if arrow:
            whole = re.sub(r"\b[A-Z_]{2,}\b", lambda name: named[name[0]], history.strip())
            rows.append([whole, *words.split()])
            history = ""
    return rows


def judged_by(model: str, ops: Iterable[Op], **settings: Any) -> Any:
    """Return the model's verdict and drawing."""
    check = load_plugin("checkers", model).prepare(ops, ModelSettings(**settings))
    return check.check(time_limit_s=300, draw=True)


def case(*nemeses: str, planned: tuple[str, ...] = (), **load: Any) -> Any:
    faults = tuple(SimpleNamespace(nemesis=nemesis) for nemesis in planned)
    asked = {"rate": 1.0, "concurrency": 10, "time_limit_s": 60.0, "ops": None}
    asked |= {"searched": False, **load}
    return SimpleNamespace(nemeses=nemeses or ("none",), faults=faults, **asked)
