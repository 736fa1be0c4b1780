"""Random histories against a brute-force oracle.

Usage: `python -m bench.judging.fuzz [HISTORIES] [--seed N]`.

Histories are small, overlap much, and are valid about as often as not: registers with
compare-and-set, maps, transactions, a directory, catalogs with ids and versions, lists and
renames, and two that are non-deterministic (a register that may lose writes, an unordered queue);
with answers that were lost and answers that are false.

Each is judged by the native searches and by the pure Python ones, and both by a recursion over all
orders that remembers nothing. What all three agree on is certified, and the certificate
verified. Anything else is printed with the seed that repeats it, and ends the command with 1.
`tests/linearizability/test_fuzz.py` runs a few hundred.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from checkers.linearizability import Limits, Operation, Result, certify, check_operations
from checkers.linearizability.native import SWITCH, is_native, native_status
from tests.linearizability.random_histories import KINDS, simulate
from tests.linearizability.test_engine import wing_and_gong

NAMES = tuple(KINDS)
LIMITS = Limits(shrink_steps=5_000)
MISMATCHES_MAX = 20
"""Mismatches that are printed; more would add nothing."""


@dataclass
class Tally:
    """The counts so far."""

    histories: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    cores: Counter[int] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)


def history(seed: int) -> tuple[str, list[Operation[Any, Any]]]:
    """The kind and the operations of one history: 3 to 9 by 2 to 4 clients."""
    rng = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    return name, simulate(
        KINDS[name],
        rng,
        clients=rng.randint(2, 4),
        total=rng.randint(3, 9),
        lost=rng.choice((0.0, 0.0, 0.1, 0.25)),
        lies=rng.choice((0, 1, 2, 3)),
        lies_from=0.0,
    )


def _in_python(model: Any, operations: list[Operation[Any, Any]]) -> Result:
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "0"
    try:
        return check_operations(model, operations, limits=LIMITS, explained=False).result
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def fuzz(seeds: range, tally: Tally) -> None:
    """Judge the histories of `seeds` three times each, and count."""
    for seed in seeds:
        name, operations = history(seed)
        model = KINDS[name].model_for(operations)
        expected = Result.OK if wing_and_gong(model, operations) else Result.ILLEGAL
        outcome = check_operations(model, operations, limits=LIMITS)
        results = (outcome.result, _in_python(model, operations))
        if results != (expected, expected):
            text = ", ".join(result.value for result in results)
            tally.mismatches.append(f"seed {seed}, {name}: {expected.value}, but found {text}")
            continue
        proof = certify(model, operations, outcome)
        if proof is None or not proof.confirmed_by:
            tally.mismatches.append(f"seed {seed}, {name}: the certificate was not confirmed")
            continue
        tally.histories[name] += 1
        tally.lost += any(operation.is_unknown for operation in operations)
        if expected is Result.ILLEGAL:
            tally.invalid[name] += 1
            tally.cores[len(proof.core)] += 1


def main() -> int:
    """Run and print a table; 1 if anything disagreed."""
    parser = argparse.ArgumentParser(description="Random histories against a brute-force oracle.")
    parser.add_argument("histories", nargs="?", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one (default: 0)")
    parsed = parser.parse_args()
    print(native_status())
    tally = Tally()
    begin_s = time.monotonic()
    fuzz(range(parsed.seed, parsed.seed + parsed.histories), tally)
    took_s = time.monotonic() - begin_s
    for name in NAMES:
        print(f"{name:26} {tally.histories[name]:7} histories, {tally.invalid[name]:6} invalid")
    total = sum(tally.histories.values())
    print(
        f"{total} histories ({sum(tally.invalid.values())} invalid, {tally.lost} with lost answers)"
        f" agreed with the oracle and were certified, in {took_s:.0f} s"
    )
    print(f"sizes of cores: {dict(sorted(tally.cores.items()))}")
    print(f"{len(tally.mismatches)} mismatches")
    for line in tally.mismatches[:MISMATCHES_MAX]:
        print(line)
    return 1 if tally.mismatches or not is_native() else 0


if __name__ == "__main__":
    raise SystemExit(main())
