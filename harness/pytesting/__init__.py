"""The fixtures of the pytest plug-in, which are loaded only when a test requests one of them.

| module          | content                                                                |
|-----------------|------------------------------------------------------------------------|
| `markers`       | from keyword arguments, marker and options to a case                   |
| `runs`          | the runs of one test: their folders, seeds and replay commands         |
| `cases`         | `run_case`: whole runs, judged                                         |
| `clusters`      | `cluster`: a deployment in which a coroutine of the test's own runs    |
| `live`          | the argument of that coroutine: operations, traffic, the cluster       |
| `fault_fixture` | `nemesis`: a fault that lasts as long as a block                       |
| `judging`       | `history`: the last recorded history, and its judgement                |

Like `harness.cli`, it is a front end to the rest of the harness. The plug-in itself is
`_harness_pytestplugin`, which imports this package as late as possible.
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
