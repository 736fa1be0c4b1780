"""Elle's verdicts against brute force, for every consistency model.

Usage: `python bench/judging/elle_oracle.py`.

Tiny random histories of lists and of registers (`--histories` of each), every model that a request
may name, and an oracle that tries all orders and visibilities (`tests/elle/brute.py`). One table
per kind: how often each verdict was given. Verdicts that are wrong, of which there must be none,
and models that were never refuted follow, each with the reason. Exit code 1 if a verdict was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]  # run as a file: the oracle is in tests/

from checkers.elle import decide_list_append, decide_rw_register  # noqa: E402
from checkers.elle.models import canonical, friendly  # noqa: E402
from checkers.elle.rules import PROVEN_BY  # noqa: E402
from harness.ops import Verdict  # noqa: E402
from tests.elle.brute import MODELS, Oracle, random_history  # noqa: E402

PORTION = 50
KINDS = ("list-append", "rw-register")

Tally = Counter[tuple[str, str]]


def judged(kind: str, seeds: range) -> tuple[Tally, list[str]]:
    """Count the verdicts of each model, and collect the wrong ones."""
    lists = kind == "list-append"
    decide = decide_list_append if lists else decide_rw_register
    tally: Tally = Counter()
    wrong = []
    for seed in seeds:
        history = random_history(random.Random(f"{kind}/{seed}"), lists=lists)
        oracle = Oracle(history, lists=lists)
        for model in MODELS:
            verdict = decide(history, consistency_models=(model,)).verdict
            tally[model, verdict.value] += 1
            if verdict is not Verdict.UNKNOWN and oracle.holds(model) != (verdict is Verdict.VALID):
                wrong.append(f"{kind}, history {seed}, {model}: {verdict.value} is wrong")
    return tally, wrong


def reason(kind: str, model: str) -> str:
    """The reason why no history refutes a model."""
    if model.endswith("read-uncommitted"):
        if kind == "list-append":
            return "a cycle of writes refutes it, and none was among these histories"
        return "only writes count, and reads of registers do not show their order"
    stronger = PROVEN_BY.get(canonical(model), ())
    return f"not looked at by itself; valid where {' or '.join(map(friendly, stronger))} holds"


def main() -> int:
    """Print the tables; the exit code is 1 if a verdict was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=2000, help="of each kind (2000)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    wrong: list[str] = []
    for kind in KINDS:
        began_s = time.monotonic()
        tally: Tally = Counter()
        portions = [
            range(low, min(low + PORTION, options.histories))
            for low in range(0, options.histories, PORTION)
        ]
        with ProcessPoolExecutor(options.jobs) as pool:
            for counts, errors in pool.map(judged, [kind] * len(portions), portions):
                tally += counts
                wrong += errors
        took_s = time.monotonic() - began_s
        print(f"\n{kind}: {options.histories} histories, {len(MODELS)} models, {took_s:.0f} s")
        print(f"{'model':36} {'valid':>6} {'invalid':>8} {'unknown':>8}")
        for model in MODELS:
            counts_of = [tally[model, verdict] for verdict in ("valid", "invalid", "unknown")]
            print("{:36} {:6} {:8} {:8}".format(model, *counts_of))
        for model in MODELS:
            if not tally[model, "invalid"]:
                print(f"never refuted: {model}: {reason(kind, model)}")
    print(f"\nwrong: {len(wrong)}", *wrong[:40], sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
