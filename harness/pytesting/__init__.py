"""What the fixtures of the pytest plug-in are made of; only loaded when a test asks for one.

| module          | what it is                                                             |
|-----------------|------------------------------------------------------------------------|
| `markers`       | from keyword arguments, marker and options to a case                   |
| `runs`          | what one test did: its runs, their folders, how to do it again         |
| `cases`         | `run_case`: whole runs, judged                                         |
| `clusters`      | `cluster`: a deployment in which a coroutine of the test's own runs    |
| `live`          | what that coroutine is given: operations, traffic, the nemesis's door  |
| `fault_fixture` | `nemesis`: something is broken for as long as a block lasts            |
| `judging`       | `history`: what was recorded last, and its judgement                   |

It stands beside `harness.cli`: both are ways to use everything below them. The plug-in itself is
`_harness_pytestplugin`, which imports nothing of this before it must.
"""

from harness.pytesting.cases import RunCase
from harness.pytesting.clusters import ClusterFactory, Deployment
from harness.pytesting.fault_fixture import NemesisFactory, Strike
from harness.pytesting.judging import HistoryOfTest
from harness.pytesting.live import LiveCluster
from harness.pytesting.runs import JudgedRun, RunsOfTest, Settings

__all__ = [
    "ClusterFactory",
    "Deployment",
    "HistoryOfTest",
    "JudgedRun",
    "LiveCluster",
    "NemesisFactory",
    "RunCase",
    "RunsOfTest",
    "Settings",
    "Strike",
]
