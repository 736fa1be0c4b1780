"""The guide of a search proposes cases that depend only on earlier results."""

import msgspec
import pytest

from harness.case import Case
from harness.environments.sim.environment import SimEnvironment
from harness.plan.planning import plan_case
from harness.plan.random_case import ANY, undrawn
from harness.search.guide import GENERATION_MAX, GENERATION_MIN, Guide, generations
from harness.soak import SeedJob, run_seed

SIM = SimEnvironment()
TOY = Case(seed=0, target="toy-register", workload="register", time_limit_s=6.0, nemeses=(ANY,))


def base(case=TOY):
    return msgspec.structs.replace(undrawn(plan_case(case, SIM).case), faults=None)


def run(case):
    return run_seed(SeedJob(case=case, observe=True, store=None, name="n", run_prefix=""))


def searched(seeds):
    guide, cases = Guide(base(), SIM, "guided"), {}
    for generation in generations(1, seeds):
        proposals = guide.generation(generation)
        for seed, proposal in proposals.items():
            cases[seed] = proposal
            result = run(proposal.case)
            guide.learn(seed, proposal, result.reached, failed=result.failed)
    return guide, cases


@pytest.mark.parametrize("search", ["uniform", "guided"])
def test_a_searched_case_of_chosen_nemeses_can_be_undrawn(search):
    chosen = Case(seed=1, nemeses=("kill-leader",), time_limit_s=6.0)
    case = Guide(base(chosen), SIM, search).case_of(1)
    assert case.searched
    assert undrawn(case).nemeses == ("kill-leader",)


def test_generations_cover_the_range_and_grow_within_bounds():
    found = list(generations(5, 1000))
    assert [seed for generation in found for seed in generation] == list(range(5, 1001))
    sizes = [len(generation) for generation in found[:-1]]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (GENERATION_MIN, GENERATION_MAX)


def test_a_longer_range_begins_with_the_same_generations():
    short, long = list(generations(1, 100)), list(generations(1, 500))
    assert short[:-1] == long[: len(short) - 1]


@pytest.mark.slow
def test_a_guided_search_varies_what_reached_new_states_and_repeats_itself():
    guide, cases = searched(20)
    swarm, uniform = Guide(base(), SIM, "swarm"), Guide(base(), SIM, "uniform")
    first = [cases[seed].case for seed in next(generations(1, 20))]
    assert first == [
        plan_case((uniform if seed % 2 else swarm).case_of(seed), SIM).case
        for seed in next(generations(1, 20))
    ]
    varied = {seed: one for seed, one in cases.items() if one.origin.parent is not None}
    assert varied
    for seed, one in varied.items():
        assert one.origin.parent < seed
        assert one.origin.changes
        assert one.case.searched
        assert undrawn(one.case).nemeses == base().nemeses
        assert plan_case(one.case, SIM).case == one.case
    again, repeated = searched(20)
    assert repeated == cases
    assert list(again.corpus.entries) == list(guide.corpus.entries)


def test_a_uniform_search_draws_every_fault_by_itself():
    guide = Guide(base(Case(seed=0, nemeses=(ANY,))), SIM, "uniform")
    cases = [guide.case_of(seed) for seed in range(1, 30)]
    assert cases == [guide.case_of(seed) for seed in range(1, 30)]
    assert max(len({fault.nemesis for fault in case.faults}) for case in cases) > 2
    assert {fault.nemesis for case in cases for fault in case.faults} == set(
        base(Case(seed=0, nemeses=(ANY,))).nemeses
    )
    for case in cases:
        assert case.searched
        last = case.faults[-1]
        assert last.at_ns + last.duration_ns > case.time_limit_s * 1e9
        assert plan_case(case, SIM).case == case


def test_without_nemeses_a_search_draws_no_fault():
    calm = base(msgspec.structs.replace(TOY, nemeses=("none",)))
    assert Guide(calm, SIM, "uniform").case_of(7).faults is None
    proposal = Guide(calm, SIM, "guided").generation([7])[7]
    assert proposal.case.faults == ()
