"""Fake trials whose results come from a function, and cases to try."""

from harness.case import Case, Fault
from harness.ops import NS_PER_S, ScheduledOp
from harness.soak.result import CheckerVerdict, SeedResult
from harness.trials.trials import Kind, Trial

KIND = Kind("checker", "rule")
OTHER = Kind("checker", "other-rule")
FAULTS = (
    Fault("k1", "kill-leader", 1 * NS_PER_S, NS_PER_S),
    Fault("k2", "kill-leader", 5 * NS_PER_S, NS_PER_S),
    Fault("p1", "pause-leader", 8 * NS_PER_S, NS_PER_S),
)
OPS = (
    ScheduledOp(0, 0, "create", {"name": "t1", "nonce": "n1"}),
    ScheduledOp(NS_PER_S, 1, "get", {"name": "t1"}),
    ScheduledOp(2 * NS_PER_S, 1, "get", {"name": "t1"}),
)


def case(**changes):
    fields = {"seed": 3, "nemeses": ("kill-leader", "pause-leader"), "faults": FAULTS, "ops": OPS}
    return Case(**(fields | changes))


def result(seed, *kinds, verdict=None):
    said = tuple(
        CheckerVerdict(kind.checker, "invalid", "broken", f"{kind} · no fault") for kind in kinds
    )
    name = verdict or ("invalid" if kinds else "valid")
    return SeedResult(seed=seed, verdict=name, reason="", checkers=said, cpu_s=1.0)


class FakeTrials:
    """Trials whose results come from `outcome`; there are at most `runs_max` results."""

    def __init__(self, outcome, runs_max=10**9):
        self.outcome = outcome
        self.runs = 0
        self.runs_max = runs_max
        self.tried = []

    @property
    def exhausted(self):
        return self.runs >= self.runs_max

    def in_order(self, cases):
        for each in cases:
            if self.exhausted:
                return
            self.runs += 1
            self.tried.append(each)
            yield Trial(each, self.outcome(each))
