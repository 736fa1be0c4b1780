"""A writer of small histories: times are in ms, and indices follow from positions."""

from types import SimpleNamespace

from harness.case import Case
from harness.ops import HARNESS, NEMESIS, History, Op, OpType

MS = 1_000_000


class Script:
    """A writer that collects ops in the order of calls."""

    def __init__(self):
        self.ops = []
        self._process = 0

    def _add(self, time_ms, process, kind, f, value=None, **more):
        self.ops.append(Op(len(self.ops), time_ms * MS, process, kind, f, value, **more))

    def fact(self, time_ms, f, **value):
        self._add(time_ms, HARNESS, OpType.INFO, f, value)

    def phase(self, time_ms, name):
        self.fact(time_ms, "phase", phase=name)

    def inject(self, time_ms, nemesis, fault, targets=("m1",)):
        value = {"action": "inject", "fault": fault, "targets": list(targets), "note": ""}
        self._add(time_ms, NEMESIS, OpType.INFO, nemesis, value)

    def heal(self, time_ms, nemesis, fault, count=1):
        value = {"action": "heal", "fault": fault, "bite": {"count": count, "unit": "x"}}
        self._add(time_ms, NEMESIS, OpType.INFO, nemesis, value)

    def invoke(self, time_ms, f="create"):
        """Begin an operation of a new process; return the process."""
        self._process += 1
        self._add(time_ms, self._process, OpType.INVOKE, f, {})
        return self._process

    def end(self, time_ms, process, kind="ok", f="create", value=None, error=None, node=None):
        self._add(time_ms, process, OpType(kind), f, value, error=error, node=node)

    def do(self, start_ms, end_ms, kind="ok", f="create", **more):
        """Add a whole operation; its two lines are adjacent."""
        process = self.invoke(start_ms, f)
        self.end(end_ms, process, kind, f, **more)

    def history(self):
        return History(self.ops)


def run_of(**changes):
    """Build a run in the form that `extract` expects."""
    case = Case(**{"seed": 1, "nemeses": ("kill",), **changes})
    return SimpleNamespace(name="n", run="r", case=case)
