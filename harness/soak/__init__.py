"""A soak runs many seeds of one case, as one piece of work that can be killed and resumed.

| module   | content                                                                 |
|----------|-------------------------------------------------------------------------|
| result   | the job and the result of one seed, and totals over results             |
| seed     | one seed in this process: run, judge, keep                              |
| planting | plants defects in a worker's code, to test whether a run finds them     |
| pool     | runs seeds on isolated worker processes (`python -m harness.soak`)      |
| real     | runs seeds one after the other, in a real environment                   |
| identity | digests of the case and of the code, which identify a soak              |
| journal  | stores results of finished seeds; locks out a second soak               |
| campaign | one soak as a whole: pending seeds, results, totals                     |
| junit    | output as JUnit XML                                                     |
| github   | output as step summary and annotations of GitHub Actions                |

Other executors, such as Spark, are plug-ins of the group `harness.soak_executors`.
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
