"""DDL while masters step down every 2 s and are killed, and what of it an election met.

As Kudu's own stress test (`integration-tests/master-stress-test.cc`) with its short elections: the
leader is told to step down every 2 s, and every 9 s a master is killed for 3 s, until the time is
over. The run is judged as any other. From its history come the elections (each later term of which
a leader was heard), the changes that were acknowledged, and of each kind of change how many were
under way when somebody came to lead: sent to a master before, and ended after.

`python -m bench.stress [--env sim|process|docker] [--seconds N] [--seed N]`; exit status 1 where a
row does not hold. The numbers of elections and of acknowledged changes are demanded of the
simulation alone: how many there are in real time is printed, and depends on the machine.
"""

from __future__ import annotations

import argparse
import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.claims import Claim, tell
from bench.measure import machine
from harness.case import Case
from harness.cli.parser import Parser
from harness.cli.run.case_options import case_from, parse_case_options
from harness.cli.run.choose import choose_environment
from harness.ops import History, OpType, Verdict
from harness.plan.planning import plan_case
from harness.run.phases import conduct
from harness.verdict.judge import Judgement, judge
from harness.vocabularies.ddl import MUTATIONS

ELECTIONS: Final = 100
ACKNOWLEDGED: Final = 2000
ACROSS: Final = 20
SECONDS: Final = {"sim": 300.0, "process": 600.0, "docker": 600.0}
FLAGS: Final = "raft_heartbeat_interval_ms=100,leader_failure_max_missed_heartbeat_periods=3"
WORDS: Final = (
    "--workload", "ddl", "--names", "12", "--rate", "40", "--kudu-flag", FLAGS,
    "--mix", "create=26,alter=26,rename=14,delete=16,get=8,list=6,locate=4",
    "--fault", "do step-down on leader every 2s",
    "--fault", "kill one@members every 9s for 3s",
)  # fmt: skip


@dataclass(frozen=True)
class Met:
    """What the history of a run says."""

    elections: int
    acknowledged: Counter[str]
    across: Counter[str]
    """Of each kind, operations sent to a master before somebody came to lead, that ended after."""
    across_ok: Counter[str]
    """Those of them that were acknowledged."""


def met(history: History) -> Met:
    """Count; times are those of the harness, who hears of a leader soon after the fact."""
    leaders = history.leaders()
    times = [op.time for op in leaders]
    acknowledged: Counter[str] = Counter()
    across: Counter[str] = Counter()
    across_ok: Counter[str] = Counter()
    for pair in history.pairs:
        f, done = pair.invoke.f, pair.completion
        if f not in MUTATIONS or done is None:
            continue
        ok = pair.type is OpType.OK
        acknowledged[f] += ok
        if done.attempts:
            # Those that waited for a leader were sent after it was there.
            first = bisect.bisect_right(times, done.attempts[0].start)
            met_one = bisect.bisect_left(times, done.time) > first
            across[f] += met_one
            across_ok[f] += met_one and ok
    return Met(max(0, len(leaders) - 1), acknowledged, across, across_ok)


def case_of(seconds: float, seed: int) -> Case:
    """The run."""
    words = [*WORDS, "--time-limit", f"{seconds:g}"]
    return case_from(parse_case_options(Parser(prog="stress"), words), seed)


def run(case: Case, environment: str) -> tuple[Met, Judgement]:
    """Run and judge."""
    chosen = choose_environment(environment)
    plan = plan_case(case, chosen)
    history = conduct(plan, chosen, run_id=f"stress-{case.seed}", folder=None).history
    return met(history), judge(history, plan.case, plan.checkers)


def claims(found: Met, judgement: Judgement, where: str) -> Iterator[Claim]:
    """The rows of the table."""
    elections_min, acknowledged_min = (ELECTIONS, ACKNOWLEDGED) if where == "sim" else (1, 1)
    bad = [
        f"{r.checker} {r.verdict.value}"
        for r in judgement.results
        if r.verdict is not Verdict.VALID
    ]
    yield Claim(
        where,
        "the history is valid",
        judgement.verdict.value + "".join(f"; {each}" for each in bad),
        judgement.verdict is Verdict.VALID,
    )
    acknowledged = found.acknowledged.total()
    kinds = ", ".join(f"{f} {found.acknowledged[f]}" for f in sorted(MUTATIONS))
    for what, least, count, told in (
        ("elections", elections_min, found.elections, str(found.elections)),
        ("changes acknowledged", acknowledged_min, acknowledged, f"{acknowledged}: {kinds}"),
    ):
        yield Claim(where, f"at least {least} {what}", told, count >= least)
    for f in sorted(MUTATIONS):
        yield Claim(
            where,
            f"at least {ACROSS} of {f} sent before and ended after one",
            f"{found.across[f]}, {found.across_ok[f]} of them ok",
            found.across[f] >= ACROSS,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="sim", choices=sorted(SECONDS))
    parser.add_argument("--seconds", type=float, help="default: 300, and 600 in real time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    seconds = given.seconds or SECONDS[given.env]
    print(f"{given.env}, {machine()}; {seconds:g} s, seed {given.seed}")
    found, judgement = run(case_of(seconds, given.seed), given.env)
    return tell(claims(found, judgement, given.env))


if __name__ == "__main__":
    raise SystemExit(main())
