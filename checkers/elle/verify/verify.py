"""Derives reported anomalies independently, from nothing but the recorded transactions.

`recorded` provides the transactions, `versions` the orders of versions, and `single` the anomalies
without a cycle. These modules share no code with the rest of `checkers.elle`. `CaseError` means
that the history does not contain the case, so the check has a bug. `NotVerified` means that the
verifier cannot decide.
"""

from __future__ import annotations

from typing import Any

from checkers.elle.recorded import (
    NIL,
    CaseError,
    NotVerified,
    Raw,
    Txn,
    require_cycle,
    require_operations,
)
from checkers.elle.verify.single import SINGLE
from checkers.elle.verify.versions import next_in_list, precedes

OF_DATA = ("ww", "wr", "rw")


class Verifier(Raw):
    """Verifies reported cases of lists or registers, from the recorded transactions alone."""

    def verify(self, case: Any) -> None:
        """Raise `CaseError` if the history lacks the case, `NotVerified` if undecided."""
        require_operations(case, self.ops)
        if case.type not in SINGLE:
            self._verify_cycle(case)
            return
        ops = [self.ops[number] for number in case.operations]
        texts = [case.details.get(name) for name in ("key", "value", "next_value")]
        try:
            check = SINGLE[case.type]
            holds = [check(self, ops, *data, case.details) for data in self.named(*texts)]
        except (KeyError, ValueError) as error:
            raise CaseError(f"{case.type}: the case lacks operations or data ({error})") from error
        if not any(holds):
            if None in holds:
                raise NotVerified(
                    "it depends on declared values or orders, or on too many versions"
                )
            raise CaseError(f"{case.type}: ops {list(case.operations)} do not show this anomaly")

    def _verify_cycle(self, case: Any) -> None:
        kinds = require_cycle(case, OF_DATA)
        orders: dict[Any, Any] = {}
        for step in case.steps:
            facts = step.reason.key, step.reason.value, step.reason.next_value
            source, target = self.ops[step.source], self.ops[step.target]
            holds = [
                self._precedes(step.reason.relation, source, target, data, orders)
                for data in self.named(*facts)
            ]
            if not any(holds):
                if None in holds or "transaction-order" in self.promised:
                    raise NotVerified(
                        "the order of its versions does not follow directly from the reads"
                    )
                edge = f"{step.reason.relation} of {facts[0]}" if facts[0] else kinds[0]
                raise CaseError(
                    f"{case.type}: nothing puts op {source.index} before op {target.index} ({edge})"
                )

    def _precedes(self, kind: str, source: Txn, target: Txn, data: Any, orders: Any) -> bool | None:
        """Return whether `source` precedes `target` by relation `kind`; `None` if undecided.

        An `info` transaction may be the target, since the next step of the cycle shows that some
        read saw its write.
        """
        key, value, after = data
        if "fail" in (source.type, target.type) or (
            source is target and (self.lists, kind) != (False, "wr")
        ):
            return False
        if kind in ("process", "realtime"):
            same = kind == "realtime" or source.process == target.process
            return same and source.end < target.call
        wrote, made = self.wrote(source, key), self.wrote(target, key)
        saw, met = self.reads(source, key), self.reads(target, key)
        # Other transactions see only the last write of a key. Only a read before the transaction's
        # own writes shows another transaction's version.
        if not self.lists:
            wrote, made = wrote[-1:], made[-1:]
            saw = [s for write, s, _ in self.acts(source, key)[:1] if not write]
            met = [s for write, s, _ in self.acts(target, key)[:1] if not write]
        if kind == "wr":
            return value in wrote and any(seen[-1:] == (value,) for seen in met)
        ends = [seen[-1] if seen else NIL for seen in saw]
        if value not in (ends if kind == "rw" else wrote) or after not in made:
            return False
        if self.lists:
            return next_in_list(self, key, value, after, orders)
        # A write of an `info` transaction happened if an `ok` transaction read it.
        happened = kind == "rw" or source.type == "ok"
        happened |= any((value,) in self.reads(txn, key) for txn in self.on.get(key, ()))
        return happened and precedes(self, key, value, after, self.promised)
