"""A soak runs many seeds of one case, as one piece of work that can be killed and resumed.

| module   | content                                                                 |
|----------|-------------------------------------------------------------------------|
| result   | the job and result of a seed, and sums over results                     |
| seed     | one seed in this process: run, judge, keep                              |
| planting | defects that a job plants in its worker                                 |
| pool     | isolated worker processes (`python -m harness.soak`)                    |
| real     | one run after the other in a real environment                           |
| identity | digests of the case and of the code, which identify a soak              |
| journal  | results of finished seeds, on disk; the lock against a second soak      |
| campaign | pending seeds, and the totals                                           |
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
