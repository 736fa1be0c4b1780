"""Planted defects of the harness itself, and the tests that must notice each of them.

A defect replaces one function, mostly by one that calls the original. `tests` are files or test ids
of the quick tier or, with `heavy`, tests that start real processes. Each replaced function is
imported by its name, so the import fails if the function is renamed.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from checkers.conduct.crash import _Excuses
from harness import store
from harness.environments.host import power
from harness.environments.process.child import Child
from harness.environments.sim.clock import SimClock
from harness.environments.sim.disk import DiskStore, _Inode
from harness.faults.budget import DamageBudget
from harness.faults.conditions import Links
from harness.faults.ledger import Ledger
from harness.ops import History, OpType, Verdict
from harness.run import interpreter, phases
from harness.run.conductor import FaultConductor
from harness.run.heartbeat import Heartbeat
from harness.run.recorder import EventScribe, Recorder
from harness.soak.campaign import Campaign
from harness.soak.journal import Journal
from harness.store import folder
from harness.support.workers import WorkerPool
from harness.verdict import judge
from tests.support.replacing import Patch, instead, replace


@dataclasses.dataclass(frozen=True)
class Defect:
    """One defect: its name, a sentence about it, the patch, and the tests that must fail.

    A test that takes longer than `limit_s` has failed.
    """

    name: str
    title: str
    patch: Patch
    tests: tuple[str, ...]
    heavy: bool
    limit_s: int


DEFECTS: dict[str, Defect] = {}


def defect(
    *tests: str, at: tuple[Any, str] | None = None, heavy: bool = False, limit_s: int = 60
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as a defect; its docstring is the sentence about the defect.

    `at` names a function to replace, which the new one gets as its first argument. Without `at`,
    the decorated function is the patch.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", "-")
        assert function.__doc__, name
        title = function.__doc__.rstrip(".")
        patch = instead(*at)(function) if at else function
        DEFECTS[name] = Defect(name, title, patch, tests, heavy, limit_s)
        return function

    return register


# --- faults ------------------------------------------------------------------------------------


@defect("tests/faults/test_leases.py", at=(Ledger, "__init__"))
def lease_never_ends(original, self, cluster, *args, **options):
    """A fault that nothing heals stays after its lease."""
    return original(self, _Deaf(cluster, "call_later"), *args, **options)


@defect("tests/faults/test_ledger.py", at=(Links, "lift"))
def heal_takes_off_the_oldest_fault(original, self, _):
    """A heal removes the oldest link fault instead of the requested one."""
    return original(self, next(iter(self._laid)))


@defect("tests/sim/test_network.py", at=(Links, "lift"))
async def bites_count_twice(original, *args):
    """A link fault reports twice as many frames as it touched."""
    return _doubled(await original(*args))


@defect("tests/faults", at=(Ledger, "_down"))
async def misses_count_as_hits(original, self, *args, **options):
    """A kill of a node that was down already counts as a hit."""
    await original(self, *args, **options)
    return True


@defect("tests/faults/test_budget.py")
def damage_has_no_budget(patch):
    """Faults may destroy the synced data of a majority without --damage majority."""
    patch.setattr(DamageBudget, "charge", lambda *_: None)


@defect("tests/run/test_faults.py", "tests/faults/test_runs.py", at=(FaultConductor, "_note"))
def faults_are_not_recorded(original, self, fault, action, *args):
    """The history does not record heals."""
    if action != "heal":
        original(self, fault, action, *args)


# --- environments ------------------------------------------------------------------------------


@defect("tests/sim/test_disk.py", at=(_Inode, "cut_power"))
def torn_write_is_whole(original, self, kept, _torn):
    """The last write that survives a power cut is never torn."""
    return original(self, kept, None)


@defect("tests/sim/test_disk.py", at=(DiskStore, "crash"))
def power_cut_keeps_unsynced_data(original, self, **_):
    """A power cut in the simulation is a plain kill."""
    return original(self, lose_unsynced=False, torn=False)


@defect("tests/host/test_power.py")
def real_power_cut_keeps_unsynced_data(patch):
    """A power cut of a real node truncates no file."""
    patch.setattr(power.os, "truncate", lambda *_: None)


@defect("tests/sim/test_conformance.py", at=(SimClock, "adjust"))
def clock_fault_skews_nothing(original, self, **_):
    """A clock fault in the simulation changes no clock."""
    return original(self, skew_ns=0, drift_ppm=0)


@defect("tests/process/test_child.py", at=(Child, "wait_stopped"), heavy=True)
async def pause_is_not_verified(_, self, *, stopped):
    """A pause returns before the process has stopped."""
    del self, stopped


# --- the run -----------------------------------------------------------------------------------


@defect("tests/run/test_driver.py")
def heartbeat_gap_is_not_recorded(patch):
    """The harness does not notice that it was stopped."""
    patch.setattr(Heartbeat, "_look", lambda self: None)


@defect("tests/generator/test_interpreter.py", at=(Recorder, "complete"))
def unknown_outcome_is_a_failure(original, self, process, f, completion):
    """An operation that may have taken effect is recorded as `fail`."""
    if completion.type is OpType.INFO:
        completion = msgspec.structs.replace(completion, type=OpType.FAIL)
    return original(self, process, f, completion)


@defect("tests/run/test_recorder.py", at=(Recorder, "history"))
def last_op_is_lost(original, self):
    """The history lacks the last recorded operation."""
    return History([*original(self)][:-1])


@defect("tests/run/test_recorder.py", at=(Recorder, "complete"))
def attempts_keep_the_clock_of_the_driver(original, self, process, f, completion):
    """Times of attempts stay on the driver's clock instead of the run's."""
    start_ns, self.start_ns = self.start_ns, 0
    try:
        return original(self, process, f, completion)
    finally:
        self.start_ns = start_ns


@defect("tests/generator/test_interpreter.py")
def hanging_client_is_waited_for(patch):
    """An operation whose client hangs never ends."""
    patch.setattr(interpreter._Driver, "_guard", lambda self, flight: None)


@defect(
    "tests/run/test_conduct_sim.py::test_what_is_disturbed_while_it_is_read_is_read_again",
    at=(phases.Run, "_final_reads"),
)
async def final_reads_are_skipped(_, self):
    """A run ends without its final reads."""
    return


@defect("tests/run/test_recorder.py", at=(EventScribe, "_on_driver_event"))
def every_exit_is_expected(original, self, event):
    """An exit that the target caused is recorded as expected."""
    if event.kind == "node-exited":
        event = msgspec.structs.replace(event, data={**event.data, "expected": True})
    original(self, event)


# --- verdicts ----------------------------------------------------------------------------------


@defect("tests/run/test_judging.py", at=(judge, "_crashed"))
def crashed_checker_is_valid(original, *args):
    """A checker that crashes counts as valid."""
    return msgspec.structs.replace(original(*args), verdict=Verdict.VALID)


@defect("tests/run/test_judging.py")
def best_result_wins(patch):
    """A run gets the verdict of its best checker."""
    patch.setattr(judge, "worst", lambda all_: min(all_, key=lambda verdict: verdict.rank))


@defect("tests/run/test_judging.py", "tests/run/test_certificate.py")
def nothing_judged_is_valid(patch):
    """A check that exempted everything counts as valid."""
    patch.setattr(judge, "weighed", lambda result: result)


@defect("tests/checkers/conduct/test_liveness_crash_stats.py", at=(_Excuses, "covers"))
def exits_of_other_nodes_are_excused(original, self, op):
    """A fault of one node's disk or clock excuses exits of all nodes."""
    return original(self, op) or bool(self._spans)


# --- stored results ----------------------------------------------------------------------------


@defect("tests/store/test_store.py")
def torn_log_is_whole(patch):
    """A log that ends in a torn record counts as complete."""
    for module in (store, folder):
        replace(patch, module, "read_log", lambda original, path: (original(path)[0], None))


@defect("tests/soak/test_campaign.py", at=(Campaign, "take"))
def result_of_another_seed_is_accepted(original, self, result, **options):
    """A soak counts results of seeds that it did not request."""
    if not self.spec.first <= result.seed <= self.spec.last:
        self.tally.take(result)
        return True
    return original(self, result, **options)


@defect("tests/soak/test_campaign.py")
def recorded_seed_runs_again(patch):
    """A resumed soak runs recorded seeds again."""
    patch.setattr(Journal, "__contains__", lambda self, seed: False)


@defect(
    "tests/soak/test_pool.py::test_a_seed_that_never_ends_is_a_crash",
    at=(WorkerPool, "_give"),
    limit_s=10,
)
def hung_worker_is_waited_for(original, self, task):
    """A worker that never answers is not killed."""
    original(self, task)
    task.deadline_s = float("inf")


class _Deaf:
    """A proxy for an object, in which one method does nothing."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self._method = inner, method

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name == self._method else getattr(self._inner, name)


def _doubled(bite: Any) -> Any:
    return msgspec.structs.replace(bite, count=2 * bite.count)
