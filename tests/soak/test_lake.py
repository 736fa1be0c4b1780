"""Soaks into a lake neither lose nor duplicate a journaled run, wherever they are killed."""

import os
import shutil
import signal

import msgspec
import pytest

import results
from harness.case import Case
from harness.cli import main
from harness.errors import EXIT_CRASH, EXIT_INVALID, EXIT_USAGE, EXIT_VALID, InfrastructureError
from harness.ops import CheckResult, Op, OpType, Verdict
from harness.ops import History as Ops
from harness.run.keep import versions_of
from harness.soak import MEASURES, Campaign, CheckerVerdict, SeedResult, SoakSpec, identity
from harness.soak.journal import Journal
from harness.verdict.signature import Failure
from results.lake.log.lake import Lake
from results.lake.transfer import soak_sink as soaked
from results.lake.transfer.ingest_verb import main as ingest_verb
from results.lake.transfer.soak_sink import LakeSink
from results.lake.upkeep.compaction import compact
from tests.soak.commands import LEASELESS, alive, journaled, kill, start, workers_of
from tests.soak.commands import results as results_of
from tests.soak.commands import soak as soak_process
from tests.support.object_store import BUCKET, flaky_proxy, options_for, refused_by, s3_server
from tests.support.run_folders import keep_run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.lake

CASE = Case(seed=0, target="toy-register", workload="register", time_limit_s=1.0)
SEEDS = 4
MEASURED = {"started", "wall_s", "day"}
FAILURE = Failure("crash", "m1 crashed", "crash · exit")


@pytest.fixture(autouse=True)
def code(request, monkeypatch):
    """Let at most two runs wait for an append to the lake, and fake the digest of the code."""
    monkeypatch.setattr(soaked, "RUNS_MAX", 2)
    if "process" not in request.keywords:
        monkeypatch.setattr(identity, "code_digest", lambda *_: "c0de")


def tables(uri):
    opened = results.open(uri)
    found = {}
    for name in opened.tables:
        rows = opened.table(name).arrow().to_table().to_pylist()
        for row in rows:
            row["run"] = row["run"].partition("@")[0]
            row["folder"] = (row.get("folder") or "").partition("@")[0]
            for column in MEASURED:
                row.pop(column, None)
        found[name] = sorted(rows, key=repr)
    return found


def lake_at(uri):
    return Lake.open(str(uri))


class Killed(BaseException):
    """The process was killed."""


def history(seed):
    value = {"name": f"t{seed}"}
    return Ops([Op(0, 0, 0, OpType.INVOKE, "get", value), Op(1, seed, 0, OpType.OK, "get", value)])


def run_one(campaign, seed, *, verdict=None, day=1):
    """Fake a worker that ran `seed`: write its run folder and return its result.

    Unless `verdict` is given, the runs of every third seed are invalid.
    """
    verdict = verdict or (Verdict.INVALID if seed % 3 == 0 else Verdict.VALID)
    failed = verdict is not Verdict.VALID
    findings = [CheckResult("crash", verdict, "m1 crashed", (), (0,))] if failed else []
    job = campaign.job(seed)
    shutil.rmtree(campaign.spec.folder / job.run, ignore_errors=True)
    made = history(seed)
    keep_run(
        campaign.spec.store, "n", job.run, job.case, made, findings,
        verdict=verdict, label=job.label, failure=FAILURE if failed else None,
        started=f"2026-01-0{day}T00:00:01+00:00", versions=versions_of(job.code),
    )  # fmt: skip
    said = tuple(CheckerVerdict("crash", verdict.value, "m1 crashed") for _ in findings)
    return SeedResult(
        seed=seed, verdict=verdict.value, digest=made.digest(), run=job.run,
        ops=len(made.pairs), ok=1,
        reason=FAILURE.reason if failed else "", checker=FAILURE.checker if failed else None,
        signature=FAILURE.signature if failed else "", checkers=said,
    )  # fmt: skip


def campaign_at(store, uri, fresh=False):
    spec = SoakSpec(
        case=CASE, environment="sim", label=None, first=1, last=SEEDS, store=store, name="n"
    )
    sink = (
        None
        if uri is None
        else lambda name, prefix: LakeSink().open(str(uri), name=name, prefix=prefix)
    )
    return Campaign(spec, fresh=fresh, sink=sink)


def soak(store, uri, **how):
    campaign = campaign_at(store, uri)
    try:
        for seed in list(campaign.pending()):
            campaign.take(run_one(campaign, seed, **how))
        campaign.flush()
        return campaign
    finally:
        campaign.close()


def ingested(store, uri):
    assert ingest_verb([str(store), "--lake", str(uri)]) == EXIT_VALID
    return tables(uri)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return the rows that an ingest of a plain soak's store produces."""
    place = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "code_digest", lambda *_: "c0de")
        soak(place / "store", None)
    return ingested(place / "store", place / "lake")


def left(store):
    return sorted(path.name for path in (store / "n").iterdir() if path.name != ".soak")


class Killer:
    """A killer that counts moments of certain kinds, and kills at the `at`th moment."""

    def __init__(self, patch, at):
        self.at, self.count = at, 0
        self._around(patch, Journal, "append", after=True)
        self._around(patch, Lake, "append", before=True, after=True)
        self._around(patch, soaked.shutil, "rmtree", before=True, after=True)
        remove = soaked.shutil.rmtree

        def torn(folder, **options):
            for path in sorted(folder.glob("*.json")):
                path.unlink(missing_ok=True)
                break
            self.moment()
            remove(folder, **options)

        patch.setattr(soaked.shutil, "rmtree", torn)

    def _around(self, patch, owner, name, *, before=False, after=False):
        whole = getattr(owner, name)

        def call(*args, **options):
            if before:
                self.moment()
            answer = whole(*args, **options)
            if after:
                self.moment()
            return answer

        patch.setattr(owner, name, call)

    def moment(self):
        self.count += 1
        if self.count == self.at:
            raise Killed


@pytest.mark.slow
def test_a_soak_killed_at_any_moment_yields_the_lake_of_a_plain_one(tmp_path, expected):
    at = 0
    while True:
        at += 1
        store, uri = tmp_path / f"s{at}", tmp_path / f"l{at}"
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, at)
            try:
                found, killed = soak(store, uri), False
            except Killed:
                killed = True
        if killed:
            found = soak(store, uri)
        assert found.tally.seeds == SEEDS
        assert tables(uri) == expected
        assert left(store) == []
        assert sorted(path.name.rpartition("@")[0] for path in (uri / "folders/n").iterdir()) == [
            found.run_name(3)
        ]
        assert found.place_of(next(r for r in found.results() if r.seed == 3)) == str(
            next((uri / "folders/n").iterdir())
        )
        if not killed:
            break
    assert at > 15


def essence(campaign):
    return [
        msgspec.structs.replace(result, **dict.fromkeys(MEASURES, 0))
        for result in campaign.results()
    ]


def test_a_soak_without_a_journal_resumes_from_the_lake(tmp_path, expected):
    store, uri = tmp_path / "store", tmp_path / "lake"
    whole = campaign_at(store, uri)
    for seed in (1, 3):
        whole.take(run_one(whole, seed))
    whole.flush()
    first = essence(whole)
    whole.close()
    shutil.rmtree(store)
    again = campaign_at(store, uri)
    assert essence(again) == first
    assert again.tally.verdicts["invalid"] == 1
    assert list(again.pending()) == [2, 4]
    assert again.notes == ["already done: 2 of 4 seeds"]
    again.close()
    soak(store, uri)
    assert tables(uri) == expected


def test_an_append_that_leaves_too_many_files_merges_small_ones(tmp_path, expected, monkeypatch):
    monkeypatch.setattr(soaked, "RUNS_MAX", 1)
    monkeypatch.setattr(soaked, "SMALL_FILES_MAX", 3)
    store, uri = tmp_path / "store", tmp_path / "lake"
    for number in range(2):  # files of another partition, which this soak does not use
        keep_run(tmp_path / "more", "o", f"r{number}", Case(seed=0), history(number), label="other")
        ingested(tmp_path / "more", uri)
    merged, files = [], []
    monkeypatch.setattr(soaked, "compact", lambda lake, **how: merged.append(compact(lake, **how)))
    campaign = campaign_at(store, uri)
    for seed in list(campaign.pending()):
        campaign.take(run_one(campaign, seed))
        files.append(len(lake_at(uri).files("runs")))
    campaign.close()

    assert files == [
        3,
        4,
        3,
        4,
        # The two files of the other partition count. Among ours, each append adds one file, and a
        # merge leaves one.
    ]
    assert len(merged) == 1
    ours = {name: [row for row in rows if row["run"].startswith("n/")] for name, rows in
            tables(uri).items()}  # fmt: skip
    assert ours == expected


def test_a_merge_that_fails_is_no_failure_of_the_soak(tmp_path, expected, monkeypatch):
    def full(lake, **_):
        raise InfrastructureError("no space left")

    monkeypatch.setattr(soaked, "RUNS_MAX", 1)
    monkeypatch.setattr(soaked, "SMALL_FILES_MAX", 1)
    monkeypatch.setattr(soaked, "compact", full)
    store, uri = tmp_path / "store", tmp_path / "lake"

    assert soak(store, uri).stopped is None

    assert tables(uri) == expected


def test_runs_of_other_code_stay_in_the_store(tmp_path):
    store, uri = tmp_path / "store", tmp_path / "lake"
    name = soak(store, uri).run_name(1)
    folder = keep_run(store, "n", name, Case(seed=1), history(7), verdict=Verdict.VALID)
    campaign = campaign_at(store, uri)
    assert list(campaign.pending()) == []
    campaign.close()
    assert (folder / "history.parquet").exists()


def test_fresh_takes_over_nothing(tmp_path):
    store, uri = tmp_path / "store", tmp_path / "lake"
    soak(store, uri)
    campaign = campaign_at(store, uri, fresh=True)
    assert list(campaign.pending()) == [1, 2, 3, 4]
    campaign.close()


def test_runs_of_another_day_are_the_same(tmp_path, expected, monkeypatch):
    store, uri = tmp_path / "store", tmp_path / "lake"
    soak(store, uri)
    shutil.rmtree(store)
    monkeypatch.setattr(identity, "code_digest", lambda *_: "other")
    soak(store, uri, day=2)
    assert tables(uri) == expected
    assert left(store) == []


def test_another_verdict_of_the_same_history_is_not_lost(tmp_path):
    store, uri = tmp_path / "store", tmp_path / "lake"
    soak(store, uri)
    shutil.rmtree(store)
    campaign = campaign_at(store, uri, fresh=True)
    campaign.take(run_one(campaign, 1, verdict=Verdict.INVALID))
    with pytest.raises(InfrastructureError, match=r"as valid, but this code judged it invalid"):
        campaign.flush()
    campaign.close()
    assert left(store) == ["latest", campaign.run_name(1)]


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.process
def test_a_soak_into_a_bucket_that_is_busy(tmp_path, expected, monkeypatch):
    with s3_server() as endpoint, flaky_proxy(endpoint, seed=5) as proxy:
        for name, value in options_for(proxy).items():
            monkeypatch.setenv(name, value)
        uri = f"s3://{BUCKET}/soaks"
        monkeypatch.setattr(identity, "code_digest", lambda *_: "c0de")
        found = soak(tmp_path / "store", uri)
        assert refused_by(proxy) > 5
        assert tables(uri) == expected
    assert found.place_of(next(one for one in found.results() if one.seed == 3)).startswith(
        f"{uri}/folders/n/{found.run_name(3)}@"
    )
    assert left(tmp_path / "store") == []


ARGUMENTS = (
    *("soak", "--seeds", "1..3", "--jobs", "1", "--target", "toy-register", "--quiet"),
    *("--workload", "register", "--nemesis", "none", "--time-limit", "1", "--name", "n"),
)


@pytest.mark.process
def test_a_lake_that_fails_ends_the_soak_with_one_line(tmp_path, capsys, monkeypatch):
    words = [*ARGUMENTS, "--store", str(tmp_path / "store"), "--lake", str(tmp_path / "lake")]
    append, calls = Lake.append, []

    def broken(self, rows):
        calls.append(rows)
        raise InfrastructureError("no space is left at the lake")

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append", broken)
        assert main(words) == EXIT_CRASH
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("harness: no space is left at the lake; 2 finished runs stay in ")
    assert len(calls) == 1  # the soak does not call the lake again at the end
    assert len(left(tmp_path / "store")) == 2
    assert Lake.append is append
    assert main(words) == EXIT_VALID
    assert "3 of 3 seeds (2 of them before): 3 valid" in capsys.readouterr().out
    assert left(tmp_path / "store") == []
    assert len(tables(tmp_path / "lake")["runs"]) == 3


def foreign(lake):
    lake.mkdir()
    (lake / "notes.txt").touch()


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (foreign, "is not a lake"),
        (lambda lake: lake.touch(), "is a file"),
        ("deltalake", "pip install 'catalog-harness[report]'"),
    ],
)
def test_invalid_places_of_lakes_are_refused_up_front(tmp_path, capsys, monkeypatch, harm, text):
    lake = tmp_path / "lake"
    if callable(harm):
        harm(lake)
    else:
        monkeypatch.setitem(__import__("sys").modules, harm, None)
    words = [*ARGUMENTS, "--store", str(tmp_path / "store"), "--lake", str(lake)]
    assert main(words) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line
    assert left(tmp_path / "store") == []


@pytest.mark.parametrize("lake", ["store", "store/lake", ".", "file://{}/store/a%20lake"])
def test_a_lake_and_a_store_lie_apart(tmp_path, monkeypatch, capsys, lake):
    monkeypatch.chdir(tmp_path)
    lake = lake.format(tmp_path)
    assert main([*ARGUMENTS, "--store", "store", "--lake", lake]) == EXIT_USAGE
    assert "keep them apart" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


PRELUDE = "from results.lake.transfer import soak_sink; soak_sink.RUNS_MAX = 2"
KUDU = (*LEASELESS, "--seeds", "1..5", "--jobs", "2", "--label", "v1")


@pytest.mark.slow
@pytest.mark.process
def test_a_real_soak_that_is_killed(tmp_path):
    plain, store, uri = tmp_path / "plain", tmp_path / "store", tmp_path / "lake"
    code, whole, _ = soak_process(plain, *KUDU)
    assert code == EXIT_INVALID
    process = start(store, *KUDU, "--lake", str(uri), prelude=PRELUDE)
    wait_until(lambda: journaled(store) >= 2 or process.poll() is not None, 300.0)
    workers = workers_of(process.pid)
    kill(process)
    wait_until(lambda: not any(map(alive, workers)))
    code, found, _ = soak_process(store, *KUDU, "--lake", str(uri))
    assert code == EXIT_INVALID
    assert (found["lake"], found["seeds"]) == (str(uri), 5)
    assert tables(uri) == ingested(plain, tmp_path / "other")
    assert left(store) == []
    places = {result["seed"]: result["run"] for result in found["results"]}
    assert places == {
        result["seed"]: None
        if result["verdict"] == "valid"
        else next(map(str, (uri / "folders/n").glob(f"*-seed-{result['seed']}@*")))
        for result in whole["results"]
    }
    shutil.rmtree(store)  # another machine continues: the lake shows which seeds are done
    code, again, _ = soak_process(store, *KUDU, "--lake", str(uri))
    assert (code, again["done_before"]) == (EXIT_INVALID, 5)
    assert results_of(again) == results_of(whole)


@pytest.mark.slow
@pytest.mark.process
def test_ctrl_c_leaves_nothing_behind_and_a_case_file_is_replayed_from_the_lake(tmp_path):
    store, uri = tmp_path / "store", tmp_path / "lake"
    case = tmp_path / "case.json"
    planned = Case(
        seed=1, nemeses=("partition-leader",), bugs=("NO-LEASE",), rate=20.0, time_limit_s=3.0,
        interval_s=1.0, duration_s=1.0,
    )  # fmt: skip
    case.write_bytes(planned.encode())
    words = ("--case", str(case), "--seeds", "1..400", "--jobs", "1", "--lake", str(uri))
    process = start(store, *words)
    wait_until(lambda: journaled(store) >= 1 or process.poll() is not None, 300.0)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode in {EXIT_INVALID, 130}, err.decode()
    assert left(store) == []
    assert len(tables(uri)["runs"]) == journaled(store)
    if process.returncode == EXIT_INVALID:
        assert f"harness lake export {uri} --store {store} --run n/soak-" in out.decode()


def test_two_soaks_at_once_over_midnight_make_a_run_once(tmp_path):
    uri = tmp_path / "lake"
    sinks = [LakeSink().open(str(uri), name="n", prefix="s-") for _ in range(2)]
    for day, sink in enumerate(sinks, 1):
        folder = keep_run(
            tmp_path / str(day), "n", "s-1", Case(seed=1), history(1),
            started=f"2026-01-0{day}T00:00:01+00:00",
        )  # fmt: skip
        sink.add(folder)
        sink.flush()
        assert not folder.exists()
    assert results.open(uri).table("runs").arrow().count_rows() == 1
