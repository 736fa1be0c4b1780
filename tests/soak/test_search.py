"""Guided and uniform soaks give the same results if they are killed, resumed or replayed."""

import msgspec
import pytest

from harness.case import Case, load_case
from harness.cli import main
from harness.soak import MEASURES, Campaign, SeedJob, SoakSpec, identity, run_seed
from harness.store import load_run

TOY = Case(
    seed=0,
    target="toy-register",
    workload="register",
    time_limit_s=5.0,
    nemeses=("kill-random", "pause-random", "partition-halves"),
    draw=2,
)
SEEDS = 20


@pytest.fixture(autouse=True)
def same_code(monkeypatch):
    monkeypatch.setattr(identity, "code_digest", lambda *_: "c0de")


def soak(store, *, search="guided", most=None, backwards=False, **fields):
    given = {"case": TOY, "environment": "sim", "label": None, "first": 1, "last": SEEDS}
    spec = SoakSpec(**{**given, "store": store, "name": "n", "search": search, **fields})
    campaign, ran = Campaign(spec, fresh=False), 0
    try:
        for wave in campaign.waves():
            jobs = list(wave)
            for job in reversed(jobs) if backwards else jobs:
                if ran == most:
                    return [], campaign
                campaign.take(run_seed(msgspec.structs.replace(job, code=None)))
                ran += 1
        results = [
            msgspec.structs.replace(result, **dict.fromkeys(MEASURES, 0))
            for result in campaign.results()
        ]
        return results, campaign
    finally:
        campaign.close()


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_neither_the_order_of_results_nor_a_kill_changes_a_guided_soak(tmp_path):
    whole, one = soak(tmp_path / "whole")
    assert len(whole) == SEEDS
    assert len({result.digest for result in whole}) > SEEDS // 2
    for most in (3, 8):
        soak(tmp_path / "killed", most=most, backwards=True)
    again, two = soak(tmp_path / "killed", backwards=True)
    assert again == whole
    assert two.done_before == 11
    assert files(one.corpus_folder) == files(two.corpus_folder)
    assert len(files(one.corpus_folder)) == 2 * len(one.guide.corpus.entries) > 0


def test_states_of_a_generation_that_was_cut_count(tmp_path):
    _, campaign = soak(tmp_path, most=1)
    campaign = Campaign(campaign.spec, fresh=False)
    (result,) = campaign.results()
    assert campaign.states == campaign.search_record["states"] == len(result.reached.states) > 0
    assert campaign.guide.corpus.entries == {}
    campaign.close()


@pytest.mark.slow
@pytest.mark.parametrize("search", ["guided", "uniform"])
def test_a_kept_run_replays_from_its_case(tmp_path, search):
    results, campaign = soak(tmp_path, search=search)
    searched = 0
    for result in results[-3:]:
        folder = result.folder(tmp_path, "n")
        assert folder.name.endswith(f"-{result.seed}")
        case = load_case(campaign.case_file(result))
        searched += case.searched
        again = run_seed(SeedJob(case=case, store=None, name="n", run_prefix=""))
        assert again.digest == result.digest == load_run(folder).history.digest()
    assert searched


def test_searches_are_soaks_of_their_own(tmp_path):
    variants = ({"search": "swarm"}, {"search": "uniform"}, {}, {"first": 2})
    ids = [soak(tmp_path, most=0, **fields)[1].id.case for fields in variants]
    assert len(set(ids)) == len(ids)
    longer = soak(tmp_path, most=0, last=SEEDS + 100)[1].id.case
    assert longer == ids[2]


@pytest.mark.slow
def test_a_crashed_seed_of_a_guided_soak_stays_crashed(tmp_path):
    _, campaign = soak(tmp_path, most=0)
    spec = campaign.spec
    campaign = Campaign(spec, fresh=False)
    job = next(next(campaign.waves()))
    result = run_seed(msgspec.structs.replace(job, code=None))
    campaign.take(
        msgspec.structs.replace(result, verdict="crash", run=None, reached=None, signature="crash")
    )
    campaign.close()
    campaign = Campaign(spec, fresh=False)
    assert 1 not in [job.seed for job in next(campaign.waves())]
    assert campaign.tally.verdicts["crash"] == 1
    campaign.close()


@pytest.mark.slow
def test_the_verb_names_the_corpus_and_replays_by_file(tmp_path, capsys, monkeypatch):
    monkeypatch.undo()
    words = ["soak", "--seeds", "1..9", "--search", "guided", "--target", "toy-register",
             "--workload", "register", "--time-limit", "5", "--jobs", "2", "--quiet",
             "--reporters", "none", "--store", str(tmp_path), "--name", "n"]  # fmt: skip
    assert main([*words]) in {0, 2}
    text = capsys.readouterr().out
    assert "states reached" in text
    assert ".corpus" in text
    assert main([*words, "--json"]) in {0, 2}
    content = msgspec.json.decode(capsys.readouterr().out)
    assert content["done_before"] == 9
    assert content["search"]["name"] == "guided"
    assert content["search"]["states"] > content["search"]["cases"] > 0
    assert all("--case" in result["replay"] for result in content["results"])
    assert not any("reached" in result for result in content["results"])
