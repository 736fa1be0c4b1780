"""The vocabulary `bank`: transfers between accounts, and reads of all balances at one instant.

The set-up of the system opens the accounts before the first operation. With the workload's defaults
these are the accounts 0 to 7, with a balance of 10 each. The answer of a read has the field
`value`: either an object with the balance of each account (`{"0": 10, "1": 10}`), or a list of
pairs (`[[0, 10], [1, 10]]`). A transfer that is refused, for example because the balance is too
low, is a `fail`. After Jepsen's `jepsen/tests/bank.clj`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from harness.vocabularies import Call, Vocabulary


class Transfer(Call, frozen=True, rename={"source": "from", "target": "to"}):
    """Move `amount`, which is positive, in one transaction.

    The fields of the value are `from`, `to` and `amount`.
    """

    f: ClassVar[str] = "transfer"
    mutates: ClassVar[bool] = True
    source: int
    target: int
    amount: int

    def asked(self) -> dict[str, Any]:
        return {"from": self.source, "to": self.target, "amount": self.amount}


class Read(Call, frozen=True):
    """Read the balances of all accounts in one transaction. The answer has them in `value`."""

    f: ClassVar[str] = "read"


CALLS = Vocabulary[Transfer | Read]("bank", (Transfer, Read))
