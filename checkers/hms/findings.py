"""What a checker of many small rules found, and the result that it makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from checkers.verdict.permitted import permit_rules
from harness.errors import counted
from harness.ops import CheckResult, History, Verdict
from harness.permits import permits_of

SHOWN_MAX: Final = 6


class Findings:
    """Violations by rule, and how often each rule was looked at."""

    def __init__(self) -> None:
        self.looked: Counter[str] = Counter()
        self._broken: Counter[str] = Counter()
        self._texts: list[str] = []
        self._blamed: dict[int, None] = {}

    def look(self, rule: str, ok: bool, text: str, blamed: Iterable[int] = ()) -> None:
        """One look; `text` is what is wrong where it is not `ok`, as a sentence."""
        self.looked[rule] += 1
        if ok:
            return
        self._broken[rule] += 1
        if self._broken[rule] <= SHOWN_MAX:
            self._texts.append(text)
            self._blamed.update(dict.fromkeys(blamed))

    def result(
        self, checker: str, history: History, *, valid: str, details: dict[str, Any] | None = None
    ) -> CheckResult:
        """Invalid where anything was found, as far as the profile does not permit it."""
        told: dict[str, Any] = {"looked": dict(sorted(self.looked.items())), **(details or {})}
        if not self._broken:
            return CheckResult(checker, Verdict.VALID, valid, details=told)
        told["by_invariant"] = dict(sorted(self._broken.items()))
        told["rule"] = "+".join(sorted(self._broken))
        total = self._broken.total()
        more = total - len(self._texts)
        text = (*self._texts, *([f"{more} more are not shown."] if more else ()))
        reason = f"{counted(total, 'violation')}, first: {self._texts[0]}"
        found = CheckResult(
            checker, Verdict.INVALID, reason, text, tuple(self._blamed), details=told
        )
        return permit_rules(found, permits_of(history))
