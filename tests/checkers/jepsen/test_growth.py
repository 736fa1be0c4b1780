"""Models taken from Jepsen need time linear in the length of the history, not quadratic."""

import pytest

from checkers.jepsen.counter import _Ledger
from checkers.jepsen.steps import NEVER, Step
from checkers.verdict.findings import Findings
from harness.ops import OpType


class Watched(list):
    """A list that counts how many of its elements are read."""

    taken = 0

    def __getitem__(self, place):
        part = super().__getitem__(place)
        self.taken += len(part) if isinstance(place, slice) else 1
        return part


@pytest.mark.parametrize("overlap", [0, 3])
def test_a_read_of_a_counter_looks_at_the_adds_around_it_alone(overlap):
    count = 200
    adds = Watched()
    reads = []
    for n in range(count):
        begin = 4 * n
        end = NEVER if n == 0 else begin + 1 + 4 * overlap
        kind = OpType.INFO if n == 0 else OpType.OK
        adds.append(Step("add", 1, None, kind, begin, end, n))
        reads.append(Step("read", None, max(0, n - overlap), OpType.OK, begin + 2, begin + 3, 0))
    findings = Findings("counter")
    ledger = _Ledger(adds)
    assert all(ledger.judge(read, findings) for read in reads)
    assert findings.result("all are right").reason == "all are right"
    assert adds.taken < (overlap + 5) * count
