"""The history models bank and bank-overdraft: transfers between accounts, and reads of balances.

This follows `jepsen/tests/bank.clj`. The operations are `transfer` with {from, to, amount}, and
`read`, whose answer has the balance of each account. Transfers never change the total. The rules
are:

* wrong-total: the balances that a read shows have a different total.
* no-balance: a read shows an account without a balance.
* negative-balance: a read shows a balance below zero. This is allowed in bank-overdraft.
* unexpected-account: the accounts were stated, and a read shows an account that is not among them.

**The total.** `--initial TOTAL` states the total. A map of balances such as `'{0 10, 1 10}'` states
the accounts as well. For a run, the total follows from the options of its workload. Without a
stated total, the most frequent total among the reads counts as right. If all reads of a run agree
on a different total, or on different accounts, the set-up may have opened the accounts differently,
so the verdict is `unknown`.

Old tests of Jepsen (Galera, CockroachDB) list the balances without accounts: `[10 10 10]`. Then an
account is a position.

Differences from Jepsen: the total and the accounts may be left out. A history is `unknown` if it
has no reads, or no transfer that may have taken effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from msgspec import UNSET
from msgspec.structs import replace

from checkers.foreign.model import refuse_settings
from checkers.jepsen.model import StepsModel, nothing_seen
from checkers.jepsen.steps import Step
from checkers.verdict.findings import Findings
from harness.errors import UsageError, counted, listed
from harness.ops import ModelSettings, Op
from harness.plugins import PreparedCheck
from harness.vocabularies import bank
from harness.vocabularies.edn import members

NAMED_MAX: Final = 8
_FIELDS: Final = frozenset({"from", "to", "amount"})
_VALUES: Final = "transfer with {from, to, amount}, where amount is a whole number, and read"
_ANSWERS: Final = (
    "reads that are answered with a whole number for each account, pairs of both, or a list of "
    "balances"
)


class _Listed(dict[str, int | None]):
    """The balances of a read that lists them without their accounts, by position."""


class BankModel(StepsModel, version="1", milder="bank-overdraft"):
    """The history model of accounts whose balances are never negative."""

    name = "bank"
    doc = "transfers between accounts: all reads show one total, and no balance below zero"
    vocabulary = bank.CALLS
    functions: ClassVar[Mapping[str, str]] = {"transfer": "with {from, to, amount}", "read": ""}
    overdraft = False

    def __init__(self) -> None:
        self.total: int | None = None
        self.accounts: frozenset[str] | None = None
        self.of_run = False

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        initial = settings.initial
        if initial is UNSET:
            return super().prepare(ops, settings)
        refuse_settings(self.name, settings)
        balances = list(initial.values()) if isinstance(initial, Mapping) else [initial]
        if not balances or not all(type(balance) is int for balance in balances):
            raise UsageError(
                f"--initial is {initial!r}; the model {self.name} takes the total of all accounts, "
                "a whole number, or a map with the balance of each account"
            )
        accounts = frozenset(initial) if isinstance(initial, Mapping) else None
        model = self._stated(sum(balances), accounts)
        return model.prepare_steps(ops, replace(settings, initial=UNSET))

    def for_run(self, options: Mapping[str, Any]) -> Self:
        """Return the model with the total and the accounts from the workload's options."""
        accounts, balance = options.get("accounts"), options.get("balance")
        if not isinstance(accounts, int) or not isinstance(balance, int):
            return self
        model = self._stated(accounts * balance, frozenset(map(str, range(accounts))))
        model.of_run = True
        model.overdraft = self.overdraft or bool(options.get("overdraft"))
        return model

    def _stated(self, total: int, accounts: frozenset[str] | None) -> Self:
        model = type(self)()
        model.total, model.accounts = total, accounts
        return model

    def parse(self, step: Step) -> Step:
        if step.f == "read":
            return step._replace(answer=_balances(step.answer) if step.did else None)
        asked = step.asked
        if not isinstance(asked, Mapping) or set(asked) != _FIELDS:
            raise ValueError(_VALUES)
        if type(asked["amount"]) is not int:
            raise ValueError(_VALUES)
        return step

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        reads = [step for step in steps if step.f == "read" and step.did]
        transfers = [step for step in steps if step.f == "transfer" and step.may_have]
        strange = self._misplaced(reads, findings)
        for read in reads:
            self._judge_balances(read, strange, findings)
        sizes = sorted({len(read.answer) for read in reads if isinstance(read.answer, _Listed)})
        if len(sizes) > 1:
            findings.gap(f"some reads list {sizes[0]} balances, and others {sizes[-1]}")
        whole = [read for read in reads if None not in read.answer.values()]
        total = self._judge_totals(whole, findings)
        if not reads:
            nothing_seen(findings, "the balances were never read: no read was answered")
        elif not transfers:
            nothing_seen(findings, "no transfer took effect, so the balances had to stay the same")
        details |= {"reads": len(reads), "transfers": len(transfers), "total": total}
        source = "" if self.total is not None else ", taken from the reads (or say --initial TOTAL)"
        return f"{counted(len(reads), 'read')} with the total {total}{source}"

    def _misplaced(self, reads: Sequence[Step], findings: Findings) -> frozenset[str]:
        """Return the unknown accounts that all reads of a run show, as its set-up opened them."""
        if not self.of_run or self.accounts is None or not reads:
            return frozenset()
        common = frozenset.intersection(*(frozenset(read.answer) for read in reads))
        strange = common - self.accounts
        if strange:
            findings.gap(
                f"all reads show {listed(sorted(strange), limit=NAMED_MAX)}, but by the options of "
                f"the workload the accounts are 0 to {len(self.accounts) - 1}",
                rule="set-up",
            )
        return strange

    def _judge_balances(self, read: Step, opened: frozenset[str], findings: Findings) -> None:
        findings.look("balances")
        absent = sorted(account for account, balance in read.answer.items() if balance is None)
        if absent:
            text = f"{_brief(read)} shows no balance for {listed(absent, limit=NAMED_MAX)}"
            findings.violate("no-balance", text, read.begin)
        unexpected = sorted(read.answer.keys() - (self.accounts or read.answer.keys()) - opened)
        if unexpected:
            text = (
                f"{_brief(read)} shows {listed(unexpected, limit=NAMED_MAX)}, which "
                "is not an account of this bank"
            )
            findings.violate("unexpected-account", text, read.begin)
        negative = {a: b for a, b in read.answer.items() if b is not None and b < 0}
        if negative and not self.overdraft:
            text = f"{_brief(read)} shows balances below zero: {_shown(negative)}"
            findings.violate("negative-balance", text, read.begin)

    def _judge_totals(self, reads: Sequence[Step], findings: Findings) -> int | None:
        """Judge the totals of complete reads; return the total that counts as right, if any."""
        amounts = [sum(read.answer.values()) for read in reads]
        totals = Counter(amounts)
        if not totals:
            return self.total
        common = totals.most_common(1)[0][0]
        agreed = reads[amounts.index(common)]
        total = common if self.total is None else self.total
        if self.total is None and len(reads) == 1:
            nothing_seen(findings, "there is one read, and no stated total: say --initial TOTAL")
            return total
        if self.of_run and len(totals) == 1 and common != total:
            findings.gap(
                f"all reads show the total {common}, but the options of the workload say {total}: "
                "the accounts were opened with other balances, or money was lost or made before "
                "the first read",
                rule="set-up",
            )
            return total
        for read, amount in zip(reads, amounts, strict=True):
            findings.look("total")
            if amount == total:
                continue
            text = f"{_brief(read)} shows balances with the total {amount}: {_shown(read.answer)}. "
            if self.total is None:
                text += f"{_brief(agreed)}, like most reads, shows the total {total}"
                findings.violate("wrong-total", text, read.begin, agreed.begin)
            else:
                findings.violate("wrong-total", f"{text}The total is {total}", read.begin)
        return total


class BankOverdraft(BankModel, version="1", milder=None):
    """The history model of accounts whose balances may be negative."""

    name = "bank-overdraft"
    doc = "transfers between accounts: all reads show one total; balances may be below zero"
    overdraft = True


def _balances(answer: Any) -> dict[str, int | None]:
    if isinstance(answer, list) and all(each is None or type(each) is int for each in answer):
        return _Listed((str(place), balance) for place, balance in enumerate(answer))
    rows: list[Any] | None
    if isinstance(answer, Mapping) and members(answer) is None:
        rows = [list(item) for item in answer.items()]
    else:
        rows = members(answer)
    if rows is None:
        raise ValueError(_ANSWERS)
    balances: dict[str, int | None] = {}
    for row in rows:
        if not isinstance(row, (list, tuple)) or len(row) != 2:
            raise ValueError(_ANSWERS)
        account, balance = row
        if str(account) in balances or not (balance is None or type(balance) is int):
            raise ValueError(_ANSWERS)
        balances[str(account)] = balance
    return balances


def _brief(read: Step) -> str:
    return f"the read {read.by}"


def _shown(balances: Mapping[str, int | None]) -> str:
    return listed([f"{a} = {b}" for a, b in sorted(balances.items())], limit=NAMED_MAX)
