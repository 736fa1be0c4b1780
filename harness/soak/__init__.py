"""Soaks: many seeds of one case, as one piece of work that survives being killed.

| module   | what                                                                    |
|----------|-------------------------------------------------------------------------|
| result   | what a seed is told, what becomes of it, sums over results              |
| seed     | one seed in this process: run, judge, keep                              |
| pool     | isolated worker processes (`python -m harness.soak`)                    |
| real     | one run after the other in a real environment                           |
| identity | digests of the case and of the code: which soak goes on where           |
| journal  | what is done, on disk; the lock that keeps two soaks apart              |
| campaign | what is to do and what it adds up to                                    |
| junit    | JUnit XML                                                               |
| github   | step summary and annotations of GitHub Actions                          |

Executors other than the local pool come as plug-ins of the group `harness.soak_executors`.
"""

from harness.soak.campaign import Campaign, SoakSpec
from harness.soak.pool import soak
from harness.soak.real import soak_one_by_one
from harness.soak.result import (
    CRASH,
    MEASURES,
    CheckerVerdict,
    SeedJob,
    SeedResult,
    Tally,
    exit_code_of,
)
from harness.soak.seed import run_seed

__all__ = [
    "CRASH",
    "MEASURES",
    "Campaign",
    "CheckerVerdict",
    "SeedJob",
    "SeedResult",
    "SoakSpec",
    "Tally",
    "exit_code_of",
    "run_seed",
    "soak",
    "soak_one_by_one",
]
