"""Checks histories of many objects, whose values are `[key value]`, one key at a time.

Jepsen writes such tuples with `jepsen.independent` (see `harness.independent`). If the values may
be either such tuples or plain values, both readings are judged. If their verdicts differ, the
verdict is `unknown`, and its reason names the option with which the user can decide.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from checkers.foreign.readings import (
    answers_of_changes,
    as_asked,
    either_of_answers,
    either_of_orders,
    in_order_of_time,
)
from harness.errors import HistoryError, counted
from harness.independent import VACUOUS, Shape, shape_of, split
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Op, Verdict
from harness.plugins import PreparedCheck
from harness.verdict.readings import EitherCheck

KEYS_LISTED_MAX: Final = 100
KEYS_EXPLAINED_MAX: Final = 4
SUMS: Final = ("operations", "configurations", "steps", "unknown", "returns", "returns_passed")
TAKEN: Final = "values are taken for [key value] tuples (jepsen.independent)"
UNDECIDED_SHAPE: Final = "tuples-or-values"


def by_key(
    name: str,
    ops: Iterable[Op],
    settings: ModelSettings,
    whole: Callable[[History], PreparedCheck],
    of_key: Callable[[Hashable], Callable[[History], PreparedCheck]] | None = None,
) -> PreparedCheck:
    """Prepare the check of `ops`, key by key if the settings say so or the values have keys.

    If completions of changes contain answers instead of the requested values, the verdict is
    `invalid` only if both readings are. `whole` prepares the check of a single object's history.
    `of_key` returns the function that prepares the check of one key. Raises `HistoryError` if the
    model cannot parse the values.
    """
    history = ops if isinstance(ops, History) else History(ops)
    check = _with_answers(name, history, settings, whole, of_key)
    by_time = in_order_of_time(history)
    if by_time is None:
        return check
    try:
        return either_of_orders(name, check, _with_answers(name, by_time, settings, whole, of_key))
    except HistoryError:
        return check


def _with_answers(
    name: str,
    history: History,
    settings: ModelSettings,
    whole: Callable[[History], PreparedCheck],
    of_key: Callable[[Hashable], Callable[[History], PreparedCheck]] | None,
) -> PreparedCheck:
    check = _by_key(name, history, settings, whole, of_key)
    answers = answers_of_changes(history)
    if not answers:
        return check
    return either_of_answers(
        name,
        check,
        lambda: _by_key(name, as_asked(history, answers), settings, whole, of_key),
        answers[0],
    )


def _by_key(
    name: str,
    history: History,
    settings: ModelSettings,
    whole: Callable[[History], PreparedCheck],
    of_key: Callable[[Hashable], Callable[[History], PreparedCheck]] | None,
) -> PreparedCheck:
    if settings.independent and history.pairs:
        return _keyed(name, history, of_key or (lambda _: whole), seen=False)
    shape = Shape.NO if settings.independent is False else shape_of(history.pairs)
    if shape is Shape.NO:
        return whole(history)
    try:
        # If the model cannot parse the first value as a tuple of key and value, the values have no
        # keys.
        first = history.pairs[0]
        ops = [first.invoke] if first.completion is None else [first.invoke, first.completion]
        _keyed(name, History(ops), lambda _: whole, seen=True)
    except HistoryError:
        return whole(history)
    if shape is Shape.SURE:
        return _keyed(name, history, lambda _: whole, seen=True)
    return _either(name, history, whole)


def _either(
    name: str, history: History, whole: Callable[[History], PreparedCheck]
) -> PreparedCheck:
    try:
        apart = _keyed(name, history, lambda _: whole, seen=True)
    except HistoryError:
        return whole(history)
    try:
        plain = whole(history)
    except HistoryError:
        return apart

    def reason(first: Verdict, second: Verdict) -> str:
        return (
            f"if the values are [key value] tuples (jepsen.independent), the history is {second}, "
            f"otherwise {first}: say --independent or --no-independent"
        )

    return EitherCheck(
        name,
        ("As they are (--no-independent)", "As tuples (--independent)"),
        plain,
        lambda: apart,
        reason,
        UNDECIDED_SHAPE,
    )


def _keyed(
    name: str,
    history: History,
    of_key: Callable[[Hashable], Callable[[History], PreparedCheck]],
    *,
    seen: bool,
) -> KeyedCheck:
    parts = {key: of_key(key)(part) for key, part in split(history).items()}
    return KeyedCheck(name, parts, seen=seen)


class _Tally:
    """The results of all keys: sums of details, and the first results of each verdict."""

    def __init__(self) -> None:
        self.verdicts: dict[Verdict, list[Hashable]] = {verdict: [] for verdict in Verdict}
        self.unseen: list[Hashable] = []
        self.seen = 0
        self.shown: dict[Hashable, CheckResult] = {}
        self.proofs: list[tuple[str, Any]] = []
        self.sums: Counter[str] = Counter()
        self.counts: dict[str, Counter[str]] = {}

    def add(self, key: Hashable, result: CheckResult) -> None:
        verdict, details = result.verdict, result.details
        if verdict is Verdict.UNKNOWN and is_vacuous(details):
            self.unseen.append(key)
        else:
            self.verdicts[verdict].append(key)
            # A key with only failed operations is valid too, but none of its answers was judged.
            self.seen += "looked" in details or "anomalies" in details
        if "proof" in details:
            self.proofs.append((repr(key), details["proof"]))
        kept = [
            result_kept for result_kept in self.shown.values() if result_kept.verdict is verdict
        ]
        if len(kept) < KEYS_EXPLAINED_MAX:
            self.shown[key] = result
        for name in SUMS:
            if isinstance(details.get(name), int):
                self.sums[name] += details[name]
        for name in ("looked", "exempt"):
            self.counts.setdefault(name, Counter()).update(details.get(name, {}))

    def results(self, verdict: Verdict) -> list[tuple[Hashable, CheckResult]]:
        return [(key, result) for key, result in self.shown.items() if result.verdict is verdict]


def is_vacuous(details: Mapping[str, Any]) -> bool:
    """Whether a verdict `unknown` with these details means that there was nothing to judge."""
    return details.get("rule") in VACUOUS or (
        bool(details.get("anomalies")) and VACUOUS.issuperset(details["anomalies"])
    )


@dataclass(frozen=True, slots=True)
class KeyedCheck:
    """The checks of all keys of one history.

    `seen` is true if the keys were recognized by the shape of the values, not by a setting. Keys
    with few operations are judged first, and leave their unused time to the other keys.
    """

    name: str
    parts: Mapping[Hashable, PreparedCheck]
    seen: bool = False

    @property
    def operations(self) -> int:
        return sum(part.operations for part in self.parts.values())

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge every key, and return the worst verdict of all keys."""
        end_s = time.monotonic() + time_limit_s
        tally = _Tally()
        drawn: Counterexample | None = None
        keys = sorted(self.parts, key=lambda key: self.parts[key].operations)
        for number, key in enumerate(keys):
            share_s = max(0.0, end_s - time.monotonic()) / (len(keys) - number)
            result, picture = self.parts[key].check(
                time_limit_s=share_s, draw=draw and drawn is None
            )
            tally.add(key, result)
            drawn = drawn or _labelled(picture, key)
        return self._merged(tally), drawn

    def _merged(self, tally: _Tally) -> CheckResult:
        if tally.verdicts[Verdict.INVALID]:
            return self._worst(tally, Verdict.INVALID)
        if tally.verdicts[Verdict.UNKNOWN] or (tally.unseen and not tally.seen):
            return self._worst(tally, Verdict.UNKNOWN)
        total = len(self.parts)
        reason = f"{counted(total, 'key')} judged apart, {self.operations} operations: valid"
        if tally.unseen:
            reason += f"; {len(tally.unseen)} of the keys had no answer to judge"
        if wild := tally.counts["exempt"].total():
            reason += f"; {wildcard_note(wild)}"
        details = self._details(tally, tally.results(Verdict.VALID)[0][1].details)
        if tally.proofs:
            details["proof"] = {"keys": [{"key": key, **proof} for key, proof in tally.proofs]}
        return CheckResult(self.name, Verdict.VALID, self._told(reason), details=details)

    def _worst(self, tally: _Tally, verdict: Verdict) -> CheckResult:
        results = tally.results(verdict)
        if tally.verdicts[verdict]:
            results = [(key, result) for key, result in results if key not in tally.unseen]
        key, first = results[0]
        count = len(tally.verdicts[verdict] or tally.unseen)
        reason = f"key {key!r}: {first.reason}"
        if count > 1:
            reason += f" (and {count - 1} more of {len(self.parts)} keys)"
        text = []
        for key, result in results:
            text += [f"Key {key!r}: {result.reason}.", *(f"  {x}" for x in result.explanation)]
        if count > len(results):
            text.append(f"{count - len(results)} more keys are not explained.")
        blamed = tuple(index for _, result in results for index in result.operations)
        details = self._details(tally, first.details)
        for name in ("anomalies", "not", "also_not"):
            if name in details:
                lists = (result.details.get(name, ()) for _, result in results)
                details[name] = sorted({item for listed in lists for item in listed})
        return CheckResult(self.name, verdict, self._told(reason), tuple(text), blamed, details)

    def _details(self, tally: _Tally, first: Mapping[str, Any]) -> dict[str, Any]:
        looked, exempt = (tally.counts.get(name, Counter()) for name in ("looked", "exempt"))
        details = {**first, **tally.sums, "keys": len(self.parts)}
        # A key without answers is exempt. If most keys are exempt, `weighed` changes the verdict.
        if not tally.seen:
            return details
        details["looked"] = {**looked, "keys": len(self.parts) - len(tally.unseen)}
        details["exempt"] = {**exempt, "keys": len(tally.unseen)}
        for verdict in (Verdict.INVALID, Verdict.UNKNOWN):
            if keys := tally.verdicts[verdict]:
                details[f"{verdict.value}_keys"] = [repr(key) for key in keys[:KEYS_LISTED_MAX]]
        return details

    def _told(self, reason: str) -> str:
        return f"{reason}; {TAKEN}, if not: --no-independent" if self.seen else reason


def wildcard_note(count: int) -> str:
    """Say that `count` reads match any value."""
    return f"{counted(count, 'read')} of nil match any value and were not judged"


def _labelled(picture: Counterexample | None, key: Hashable) -> Counterexample | None:
    if picture is None:
        return None
    labels = {index: f"{key!r}: {label}" for index, label in picture.labels.items()}
    return replace(picture, labels=labels)
