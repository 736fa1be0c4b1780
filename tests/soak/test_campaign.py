"""A soak keeps account of finished, pending and repeated seeds."""

import shutil

import msgspec
import pytest

from harness.case import Case
from harness.errors import InfrastructureError, UsageError
from harness.soak import MEASURES, Campaign, SeedResult, SoakSpec, campaign, identity, run_seed
from harness.store import load_run

TOY = Case(seed=0, target="toy-register", workload="register", time_limit_s=1.0)


@pytest.fixture(autouse=True)
def code(monkeypatch):
    """Replace the digest of the code by one that the test can change."""
    current = {"digest": "c0de"}
    monkeypatch.setattr(identity, "code_digest", lambda *_: current["digest"])
    return current


def spec(store, **fields):
    given = {"case": TOY, "environment": "sim", "label": None, "first": 1, "last": 4}
    return SoakSpec(**{**given, "store": store, "name": "n", **fields})


class Opened:
    """A context that opens a campaign, and closes it at the end."""

    def __init__(self, store, *, fresh=False, **fields):
        self.campaign = Campaign(spec(store, **fields), fresh=fresh)

    def __enter__(self):
        return self.campaign

    def __exit__(self, *_):
        self.campaign.close()


def work(found, seeds=None):
    """Run the pending seeds, or some of them, in this process."""
    for seed in list(found.pending()):
        if seeds is None or seed in seeds:
            job = msgspec.structs.replace(found.job(seed), code=None)
            if not found.take(run_seed(job)):
                return


def essence(found):
    """Return the results that must be equal, however often a soak was interrupted."""
    return [
        msgspec.structs.replace(result, **dict.fromkeys(MEASURES, 0)) for result in found.results()
    ]


def runs(store):
    found = (store / "n").iterdir()
    return sorted(path for path in found if path.name[0] != "." and not path.is_symlink())


def test_a_soak_goes_on_where_it_stopped(tmp_path):
    with Opened(tmp_path / "whole") as whole:
        work(whole)
    with Opened(tmp_path / "cut") as found:
        work(found, {1, 3})
    with Opened(tmp_path / "cut") as found:
        assert list(found.pending()) == [2, 4]
        assert any("2 of 4 seeds" in note for note in found.notes)
        work(found)
        assert found.done_before == 2
        assert essence(found) == essence(whole)
        assert found.tally.verdicts == whole.tally.verdicts
        assert found.tally.ops == whole.tally.ops > 0


def test_a_wider_range_reuses_and_a_narrower_one_counts_only_its_own(tmp_path):
    with Opened(tmp_path) as found:
        work(found)
    with Opened(tmp_path, first=3, last=6) as found:
        assert list(found.pending()) == [5, 6]
        assert found.tally.seeds == 2
    with Opened(tmp_path, first=2, last=2) as found:
        assert list(found.pending()) == []
        assert [result.seed for result in found.results()] == [2]


def test_fresh_runs_everything_again_into_the_same_folders(tmp_path):
    with Opened(tmp_path) as found:
        work(found)
        names = runs(tmp_path)
    with Opened(tmp_path, fresh=True) as found:
        assert list(found.pending()) == [1, 2, 3, 4]
        work(found)
    assert runs(tmp_path) == names


def test_crashes_are_tried_again_and_count_until_then_for_nothing(tmp_path):
    with Opened(tmp_path) as found:
        found.take(SeedResult(seed=2, verdict="crash", reason="a bad day"))
        assert found.tally.exit_code == 255
        (crash,) = found.results()
        assert b'"seed": 2' in found.case_file(crash).read_bytes()
    with Opened(tmp_path) as found:
        assert any("1 seed again" in note for note in found.notes)
        assert list(found.pending()) == [1, 2, 3, 4]
        assert found.tally.seeds == 0
        work(found)
        assert [result.verdict for result in found.results()] == ["valid"] * 4
        # the case's file is gone, since reports count a case without a run as a crash
        assert list((tmp_path / "n" / ".soak").glob("*.case.json")) == []


def folder_of(found, seed):
    return found.spec.folder / found.run_name(seed)


@pytest.mark.parametrize(
    "harm",
    [
        shutil.rmtree,
        lambda folder: (folder / "run.json").unlink(),
        lambda folder: (folder / "run.json").write_text('{"digest": "other"}'),
        lambda folder: (folder / "run.json").write_bytes(
            (folder / "run.json").read_bytes().replace(b'"valid"', b'"invalid"')
        ),
        lambda folder: (folder / "run.json").write_bytes(b"\xff\x00"),
        lambda folder: (folder / "history.parquet").unlink(),
    ],
)
def test_a_run_that_the_store_lacks_is_run_again(tmp_path, harm):
    with Opened(tmp_path) as found:
        work(found)
        whole = essence(found)
        harm(folder_of(found, 3))
    with Opened(tmp_path) as found:
        assert list(found.pending()) == [3]
        assert any("1 seed again" in note for note in found.notes)
        work(found)
        assert load_run(folder_of(found, 3)).record is not None
        assert essence(found) == whole


def test_passing_runs_may_lack_where_only_failing_ones_are_kept(tmp_path):
    with Opened(tmp_path, keep="failing") as found:
        work(found)
        assert runs(tmp_path) == []
    with Opened(tmp_path, keep="failing") as found:
        assert list(found.pending()) == []
    with Opened(tmp_path, keep="all") as found:
        assert list(found.pending()) == [1, 2, 3, 4]


def test_labels_and_cases_live_side_by_side(tmp_path):
    kinds = [
        {"label": "v1"},
        {"label": "v2"},
        {"label": None},
        {"label": "v1", "case": msgspec.structs.replace(TOY, rate=20.0)},
    ]
    opened = [Opened(tmp_path, last=1, **kind) for kind in kinds]
    for each in opened:
        with each as found:
            assert list(found.pending()) == [1]
            work(found)
    labels = sorted(load_run(path).record.label or "" for path in runs(tmp_path))
    assert labels == ["", "v1", "v1", "v2"]


@pytest.mark.parametrize("change", [{"first": 3, "last": 9}, {"keep": "failing"}])
def test_options_without_influence_on_results_keep_the_soak(tmp_path, change):
    with Opened(tmp_path), pytest.raises(UsageError, match="same soak"):
        Opened(tmp_path, **change)


def test_other_code_begins_anew_says_so_and_replaces_the_runs(tmp_path, code):
    with Opened(tmp_path) as found:
        work(found, {1, 2})
    code["digest"] = "0the2"
    with Opened(tmp_path) as found:
        assert any("the code changed since this soak last ran" in text for text in found.notes)
        assert list(found.pending()) == [1, 2, 3, 4]
        work(found)
    assert len(runs(tmp_path)) == 4
    with Opened(tmp_path) as found:
        assert [text for text in found.notes if "code changed" in text] == []


@pytest.mark.parametrize("verdict", ["valid", "crash"])
def test_a_run_of_old_code_does_not_outlast_a_result_that_keeps_none(tmp_path, code, verdict):
    # If the old run stayed, reports would include results of the old code under this label.
    with Opened(tmp_path) as found:
        work(found, {1, 2})
    code["digest"] = "0the2"
    with Opened(tmp_path, keep="failing") as found:
        found.take(SeedResult(seed=1, verdict=verdict, reason=""))
        assert runs(tmp_path) == [folder_of(found, 2)]


def test_journals_of_old_code_are_few(tmp_path, code):
    for number in range(12):
        code["digest"] = f"{number:04}"
        Opened(tmp_path).campaign.close()
    journals = sorted(path.name for path in (tmp_path / "n" / ".soak").glob("*.log"))
    assert len(journals) == campaign.JOURNALS_A_CASE_MAX
    assert journals[-1].endswith("-0011.log")


def test_other_code_does_not_run_while_the_old_one_does(tmp_path, code):
    with Opened(tmp_path):
        code["digest"] = "0the2"
        with pytest.raises(UsageError, match="same soak"):
            Opened(tmp_path)


def test_enough_invalid_seeds_stop_it_now_and_the_next_time(tmp_path):
    def bad(seed, verdict):
        return SeedResult(seed=seed, verdict=verdict, reason="no")

    with Opened(tmp_path, stop_after=2, last=5) as found:
        assert found.take(bad(1, "crash"))
        assert found.take(bad(2, "invalid"))
        assert found.take(SeedResult(seed=3, verdict="valid", reason=""))
        assert found.take(bad(4, "unknown"))
        assert not found.take(bad(5, "invalid"))
        assert found.enough


def test_a_result_comes_twice_and_counts_once(tmp_path):
    with Opened(tmp_path, keep="failing") as found:
        for verdict in ("valid", "invalid"):
            assert found.take(SeedResult(seed=1, verdict=verdict, reason=""))
        assert [result.verdict for result in found.results()] == ["valid"]
        assert found.tally.seeds == 1


def test_an_unrequested_result_is_a_bug_of_the_harness(tmp_path):
    with Opened(tmp_path) as found, pytest.raises(InfrastructureError, match="seed 77"):
        found.take(SeedResult(seed=77, verdict="valid", reason=""))


def test_an_unkept_run_is_not_valid_but_may_be_invalid(tmp_path):
    for verdict, code in (("valid", 2), ("unknown", 2), ("invalid", 1), ("crash", 2)):
        with Opened(tmp_path) as found:
            lost = SeedResult(seed=1, verdict=verdict, reason="r", stop="the disk is full")
            assert not found.take(lost)
            assert found.stopped == "the disk is full"
            assert list(found.results()) == []
            assert found.tally.exit_code == code
            assert found.tally.seeds == (verdict == "invalid")


@pytest.mark.parametrize(("verdict", "code"), [("valid", 2), ("unknown", 2), ("invalid", 1)])
def test_an_unjournaled_result_is_not_valid_but_may_be_invalid(
    tmp_path, monkeypatch, verdict, code
):
    def full(*_):
        raise InfrastructureError("the disk is full")

    with Opened(tmp_path) as found:
        monkeypatch.setattr(found._journal, "append", full)
        with pytest.raises(InfrastructureError, match="the disk is full"):
            found.take(SeedResult(seed=1, verdict=verdict, reason="r"))
        assert found.tally.exit_code == code
        assert found.tally.seeds == (verdict == "invalid")


def test_leftovers_of_killed_workers_are_swept_and_nothing_else(tmp_path):
    with Opened(tmp_path, label="v1") as found:
        work(found, {1})
        mine = found.spec.folder / f".{found.run_name(2)}.123.part"
        mine.mkdir()
        (mine / "half").write_text("x")
    other = tmp_path / "n" / ".v2-01234567-seed-2.123.part"
    other.mkdir()
    with Opened(tmp_path, label="v1"):
        assert not mine.exists()
        assert other.exists()


@pytest.mark.parametrize(
    "fields", [{"label": "a/b"}, {"label": ""}, {"name": ".x"}, {"keep": "no"}]
)
def test_names_that_cannot_be(tmp_path, fields):
    with pytest.raises(UsageError, match="--"):
        spec(tmp_path, **fields)


def test_a_proof_whose_run_no_column_holds_can_be_replayed_and_is_tried_again(tmp_path):
    proof = SeedResult(seed=2, verdict="invalid", reason="it lied")
    with Opened(tmp_path) as found:
        assert found.take(proof)
        assert b'"seed": 2' in found.case_file(proof).read_bytes()
        assert found.tally.verdicts["invalid"] == 1
    with Opened(tmp_path) as found:
        assert 2 in found.pending()
