"""Defects of the harness itself, planted one at a time, and the tests that must notice each.

A defect replaces one function, mostly by one that calls the original. `tests` are files or test ids
of the quick tier or, with `heavy`, tests that start real processes. Each replaced function is
imported by its name, so the import fails if the function is renamed.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

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

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclasses.dataclass(frozen=True)
class Defect:
    """One defect: its name, one sentence, the patch, and the tests that must fail.

    A test that takes longer than `limit_s` has failed.
    """

    name: str
    title: str
    patch: Patch
    tests: tuple[str, ...]
    heavy: bool
    limit_s: int


DEFECTS: dict[str, Defect] = {}


def defect(*tests: str, heavy: bool = False, limit_s: int = 60) -> Callable[[Patch], Patch]:
    """Register a patch under its name; its docstring is the sentence."""

    def register(patch: Patch) -> Patch:
        name = patch.__name__.replace("_", "-")
        assert patch.__doc__, name
        DEFECTS[name] = Defect(name, patch.__doc__.rstrip("."), patch, tests, heavy, limit_s)
        return patch

    return register


def wrap(patch: pytest.MonkeyPatch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by `around`, which gets the original as its first argument."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **options: around(original, *args, **options))


# --- faults ------------------------------------------------------------------------------------


@defect("tests/faults/test_leases.py")
def lease_never_ends(patch):
    """A fault that nothing heals stays after its lease."""
    wrap(
        patch, Ledger, "__init__",
        lambda original, self, cluster, *args, **options: original(
            self, _Deaf(cluster, "call_later"), *args, **options
        ),
    )  # fmt: skip


@defect("tests/faults/test_ledger.py")
def heal_takes_off_the_oldest_fault(patch):
    """A heal removes the oldest link fault instead of the requested one."""
    wrap(patch, Links, "lift", lambda original, self, _: original(self, next(iter(self._laid))))


@defect("tests/sim/test_network.py")
def bites_count_twice(patch):
    """A link fault reports twice as many frames as it touched."""

    async def around(original, *args):
        return _doubled(await original(*args))

    wrap(patch, Links, "lift", around)


@defect("tests/faults")
def misses_count_as_hits(patch):
    """A kill of a node that was down already counts as a hit."""

    async def around(original, self, *args, **options):
        await original(self, *args, **options)
        return True

    wrap(patch, Ledger, "_down", around)


@defect("tests/faults/test_budget.py")
def damage_has_no_budget(patch):
    """Faults may destroy the synced data of a majority without --damage majority."""
    patch.setattr(DamageBudget, "charge", lambda *_: None)


@defect("tests/run/test_faults.py", "tests/faults/test_runs.py")
def faults_are_not_recorded(patch):
    """The history does not record heals."""

    def around(original, self, fault, action, *args):
        if action != "heal":
            original(self, fault, action, *args)

    wrap(patch, FaultConductor, "_note", around)


# --- environments ------------------------------------------------------------------------------


@defect("tests/sim/test_disk.py")
def torn_write_is_whole(patch):
    """The last write that survives a power cut is never torn."""
    wrap(patch, _Inode, "cut_power", lambda original, self, kept, _torn: original(self, kept, None))


@defect("tests/sim/test_disk.py")
def power_cut_keeps_unsynced_data(patch):
    """A power cut in the simulation is a plain kill."""
    wrap(
        patch, DiskStore, "crash",
        lambda original, self, **_: original(self, lose_unsynced=False, torn=False),
    )  # fmt: skip


@defect("tests/host/test_power.py")
def real_power_cut_keeps_unsynced_data(patch):
    """A power cut of a real node truncates no file."""
    patch.setattr(power.os, "truncate", lambda *_: None)


@defect("tests/sim/test_conformance.py")
def clock_fault_skews_nothing(patch):
    """A clock fault in the simulation changes no clock."""
    wrap(
        patch, SimClock, "adjust",
        lambda original, self, **_: original(self, skew_ns=0, drift_ppm=0),
    )  # fmt: skip


@defect("tests/process/test_child.py", heavy=True)
def pause_is_not_verified(patch):
    """A pause returns before the process has stopped."""

    async def at_once(self, *, stopped):
        del self, stopped

    patch.setattr(Child, "wait_stopped", at_once)


# --- the run -----------------------------------------------------------------------------------


@defect("tests/run/test_driver.py")
def heartbeat_gap_is_not_recorded(patch):
    """The harness does not notice that it was stopped."""
    patch.setattr(Heartbeat, "_look", lambda self: None)


@defect("tests/generator/test_interpreter.py")
def unknown_outcome_is_a_failure(patch):
    """An operation that may have taken effect is recorded as `fail`."""

    def around(original, self, process, f, completion):
        if completion.type is OpType.INFO:
            completion = msgspec.structs.replace(completion, type=OpType.FAIL)
        return original(self, process, f, completion)

    wrap(patch, Recorder, "complete", around)


@defect("tests/run/test_recorder.py")
def last_op_is_lost(patch):
    """The history lacks the last recorded operation."""
    wrap(patch, Recorder, "history", lambda original, self: History([*original(self)][:-1]))


@defect("tests/run/test_recorder.py")
def attempts_keep_the_clock_of_the_driver(patch):
    """Times of attempts stay on the driver's clock instead of the run's."""

    def around(original, self, process, f, completion):
        start_ns, self.start_ns = self.start_ns, 0
        try:
            return original(self, process, f, completion)
        finally:
            self.start_ns = start_ns

    wrap(patch, Recorder, "complete", around)


@defect("tests/generator/test_interpreter.py")
def hanging_client_is_waited_for(patch):
    """An operation whose client hangs never ends."""
    patch.setattr(interpreter._Driver, "_guard", lambda self, flight: None)


@defect("tests/run/test_conduct_sim.py::test_what_is_disturbed_while_it_is_read_is_read_again")
def final_reads_are_skipped(patch):
    """A run ends without its final reads."""

    async def nothing(self):
        return

    patch.setattr(phases.Run, "_final_reads", nothing)


@defect("tests/run/test_recorder.py")
def every_exit_is_expected(patch):
    """An exit that the target caused is recorded as expected."""

    def around(original, self, event):
        if event.kind == "node-exited":
            event = msgspec.structs.replace(event, data={**event.data, "expected": True})
        original(self, event)

    wrap(patch, EventScribe, "_on_driver_event", around)


# --- verdicts ----------------------------------------------------------------------------------


@defect("tests/run/test_judging.py")
def crashed_checker_is_valid(patch):
    """A checker that crashes counts as valid."""
    wrap(
        patch, judge, "_crashed",
        lambda original, *args: msgspec.structs.replace(original(*args), verdict=Verdict.VALID),
    )  # fmt: skip


@defect("tests/run/test_judging.py")
def best_result_wins(patch):
    """A run gets the verdict of its best checker."""
    patch.setattr(judge, "worst", lambda all_: min(all_, key=lambda verdict: verdict.rank))


@defect("tests/run/test_judging.py", "tests/run/test_certificate.py")
def nothing_judged_is_valid(patch):
    """A check that exempted everything counts as valid."""
    patch.setattr(judge, "weighed", lambda result: result)


@defect("tests/checkers/conduct/test_liveness_crash_stats.py")
def exits_of_other_nodes_are_excused(patch):
    """A fault of one node's disk or clock excuses exits of all nodes."""

    def around(original, self, op):
        return original(self, op) or bool(self._spans)

    wrap(patch, _Excuses, "covers", around)


# --- what is kept ------------------------------------------------------------------------------


@defect("tests/store/test_store.py")
def torn_log_is_whole(patch):
    """A log that ends in a torn record counts as complete."""
    for module in (store, folder):
        wrap(patch, module, "read_log", lambda original, path: (original(path)[0], None))


@defect("tests/soak/test_campaign.py")
def result_of_another_seed_is_accepted(patch):
    """A soak counts results of seeds that it did not request."""

    def around(original, self, result, **options):
        if not self.spec.first <= result.seed <= self.spec.last:
            self.tally.take(result)
            return True
        return original(self, result, **options)

    wrap(patch, Campaign, "take", around)


@defect("tests/soak/test_campaign.py")
def recorded_seed_runs_again(patch):
    """A resumed soak runs recorded seeds again."""
    patch.setattr(Journal, "__contains__", lambda self, seed: False)


@defect("tests/soak/test_pool.py::test_a_seed_that_never_ends_is_a_crash", limit_s=10)
def hung_worker_is_waited_for(patch):
    """A worker that never answers is not killed."""

    def around(original, self, task):
        original(self, task)
        task.deadline_s = float("inf")

    wrap(patch, WorkerPool, "_give", around)


class _Deaf:
    """A proxy for an object, in which one method does nothing."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self._method = inner, method

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name == self._method else getattr(self._inner, name)


def _doubled(bite: Any) -> Any:
    return msgspec.structs.replace(bite, count=2 * bite.count)
