"""An interrupted run skips phases, and says so."""

import pytest

from harness.cli import main
from harness.errors import EXIT_UNKNOWN, EXIT_VALID
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from harness.run.phases import conduct
from harness.soak import SeedJob, real
from harness.store import load_run
from tests.run.test_conduct_sim import PHASES, Behaving, phases_of, toy

AFTER_THE_WORKLOAD = PHASES[PHASES.index("heal-core") :]
SENTENCE = "only what happened until then was checked"


class InterruptedAt(Behaving):
    """The simulation with a Ctrl-C at the moment when the run reaches a phase."""

    def __init__(self, phase):
        super().__init__(load_plugin("environments", "sim"))
        self._phase = phase

    def execute(self, plan, main):
        async def watched(session):
            self._session = session
            return await main(session)

        return self._plugin.execute(plan, watched)

    def listen(self, op):
        if op.f == "phase" and op.value["phase"] == self._phase:
            self._session.interrupted.set()


def conducted(phase, folder=None):
    environment = InterruptedAt(phase)
    plan = plan_case(toy(8, time_limit_s=5.0), environment)
    return conduct(plan, environment, run_id="test", folder=folder, listener=environment.listen)


@pytest.mark.parametrize("phase", PHASES)
def test_only_the_workload_can_be_cut_short(phase):
    outcome = conducted(phase)
    late = phase in AFTER_THE_WORKLOAD
    assert (outcome.interrupted, outcome.stop_asked) == (not late, True)
    assert any(outcome.history.facts("interrupted")) == (not late)
    assert phases_of(outcome.history) == PHASES
    if late:
        environment = load_plugin("environments", "sim")
        plan = plan_case(toy(8, time_limit_s=5.0), environment)
        whole = conduct(plan, environment, run_id="test", folder=None)
        assert outcome.history.digest() == whole.history.digest()


@pytest.mark.parametrize("phase", ["warm-up", "final"])
def test_a_run_says_that_it_was_cut_short_only_where_it_was(phase, monkeypatch, tmp_path, capsys):
    environment = InterruptedAt(phase)

    def conducting(plan, _environment, *, listener, **named):
        return conduct(plan, environment, listener=environment.listen, **named)

    monkeypatch.setattr("harness.run.keep.conduct", conducting)
    words = ["run", "--env", "sim", "--target", "toy-register", "--workload", "register"]
    words += ["--seed", "8", "--time-limit", "5", "--reporters", "none", "--store", str(tmp_path)]
    cut = phase == "warm-up"
    assert main(words) == (EXIT_UNKNOWN if cut else EXIT_VALID)
    out = capsys.readouterr().out
    assert (SENTENCE in out, "nothing was skipped" in out) == (cut, not cut)
    (folder,) = (tmp_path / "register-none").glob("2*")
    assert load_run(folder).record.interrupted == cut


@pytest.mark.parametrize("phase", ["warm-up", "final"])
def test_a_soak_ends_at_an_interrupt_and_counts_what_is_whole(phase, tmp_path):
    environment = InterruptedAt(phase)
    job = SeedJob(case=toy(0, time_limit_s=5.0), store=str(tmp_path), name="n", run_prefix="p")
    taken = []
    interrupted = real.soak_one_by_one(
        (job.of_seed(seed) for seed in (1, 2)),
        environment,
        on_result=lambda result: not taken.append(result),
        listen=lambda _seed: environment.listen,
    )
    assert interrupted
    assert [(result.seed, result.stop is None) for result in taken] == [(1, phase == "final")]
