"""On the way from checkers to a report no verdict is lost, none is made better."""

import ast
import inspect
import shutil
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.ops import CheckResult, History, Verdict
from results.facts import extraction as facts
from results.judging import manifest, store_source, units
from results.judging.executors import pool
from results.judging.executors.cluster import SparkExecutor
from results.judging.manifest import FACTS_MODULES
from results.judging.markers import RESULTS, Marker, index, read_result
from results.judging.packing import pack
from results.judging.pipeline import check_store
from results.judging.problems import scan_store
from results.judging.units import CRASHED, Config
from results.questions import aggregate
from results.questions.engines import BASES, OF_CELLS_FIRST, Extent, query_names
from results.report.verb import report_store
from tests.results.judging.stores import keyed_history, put_run, register_ops, rows_of, verdicts
from tests.results.report.test_verb import add_quick

LINEAR = "linearizable-register"


@pytest.fixture(autouse=True)
def few_checkers(monkeypatch):
    """Those that need no end of the run."""
    monkeypatch.setattr(manifest.Registry, "checkers_of", lambda *_: (LINEAR, "crash", "stats"))


def report(store, *, whole=False):
    """The summary, and the verdict of each run in `judged`.

    Unless it is to be whole, no questions are asked but those whose answers are looked at here, and
    nothing stands on the page.
    """
    cells = ("run_cells", "digest_cells", "latency_cells")
    asked = [*BASES, *cells, *OF_CELLS_FIRST, *aggregate._NEEDED, "totals"]
    asked.sort(key=query_names().index)
    with pytest.MonkeyPatch.context() as patch:
        if not whole:
            patch.setattr(Extent, "names", lambda _: asked)
            patch.setattr("results.report.content.sections", lambda *_: [])
            patch.setattr("results.report.page.render", lambda *_: "")
        found, answers, _ = report_store(store, output=store / ".report", executor="inline")
    return found, {row["run"]: row["verdict"] for row in answers.rows("judged")}, answers


def inline(store, **options):
    return check_store(store, executor="inline", **options)


def result_of(store, checker):
    """The file of one stored verdict."""
    for path in index(store / RESULTS).values():
        table = read_result(path).get("verdicts")
        if table is not None and table["checker"][0].as_py() == checker:
            return path
    raise AssertionError(checker)


@pytest.mark.slow
def test_an_invalid_run_stays_invalid_where_its_facts_cannot_be_extracted(tmp_path, monkeypatch):
    add_quick(tmp_path, "n", "bad", stale=True, bugs=("NO-LEASE",), label="v")
    add_quick(tmp_path, "n", "clean", stale=True, seed=3)
    add_quick(tmp_path, "n", "good", seed=2)
    real = facts.extract

    def extract(run, history):
        if run.run != "good" and len(history):
            raise RuntimeError("no facts")
        return real(run, history)

    monkeypatch.setattr(facts, "extract", extract)
    for whole in (True, False):
        summary, found, answers = report(tmp_path, whole=whole)
        assert found == {"n/bad": "invalid", "n/clean": "invalid", "n/good": "valid"}
        assert summary.exit_code == 1
        assert [(run, kind) for run, kind, _ in summary.problems] == [
            ("n/bad", "facts"),
            ("n/clean", "facts"),
        ]
        (detected,) = answers.rows("detection_rates")
        assert (detected["bug"], detected["runs"], detected["detected"]) == ("NO-LEASE", 1, 1)
        assert [row["invalid"] for row in answers.rows("clean_rates")] == [1]


@pytest.mark.parametrize("lost", [LINEAR, "stats", "crash"])
def test_a_run_without_the_verdict_of_one_checker_is_not_valid(tmp_path, monkeypatch, lost):
    add_quick(tmp_path, "n", "r")
    real = units.write_result

    def write(results, result_id, tables, *, mark=""):
        table = tables.get("verdicts")
        if table is None or table["checker"][0].as_py() != lost:
            real(results, result_id, tables, mark=mark)

    with monkeypatch.context() as broken:
        broken.setattr(units, "write_result", write)
        summary, found, _ = report(tmp_path)
    assert (found, summary.exit_code) == ({"n/r": "unknown"}, 2)
    assert [(run, kind) for run, kind, _ in summary.problems] == [("n/r", "lost")]
    assert report(tmp_path)[1] == {"n/r": "valid"}


@pytest.mark.parametrize("buckets", [0, 2])
def test_a_checker_that_cannot_be_had_costs_its_verdicts_only(tmp_path, monkeypatch, buckets):
    names = (LINEAR, "gone")
    monkeypatch.setattr(manifest.Registry, "checkers_of", lambda *_: names)
    history = keyed_history("abc") if buckets else History(register_ops(1))
    put_run(tmp_path, "n", "r", history, buckets=buckets)
    summary, found, _ = report(tmp_path)
    assert (found, summary.exit_code) == ({"n/r": "unknown"}, 2)
    ((run, kind, text),) = summary.problems
    assert (run, kind) == ("n/r", "checker")
    assert "'gone'" in text
    checked = verdicts(inline(tmp_path))
    assert checked.pop(("n/r", "gone", None)) == "unknown"
    assert set(checked.values()) == {"valid"}
    assert len(checked) == (3 if buckets else 1)


def test_a_stored_result_that_was_cut_off_or_altered_is_noticed(tmp_path):
    put_run(tmp_path, "n", "r", History(register_ops(1, count=4)))
    inline(tmp_path)
    for path in index(tmp_path / RESULTS).values():
        whole = path.read_bytes()
        for size in range(0, len(whole), 8):
            path.write_bytes(whole[:size])
            with pytest.raises(ValueError, match="damaged"):
                read_result(path)
        for place in range(0, len(whole), 97):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ValueError, match="damaged"):
                read_result(path)
        path.write_bytes(whole)
        assert read_result(path)


def test_a_damaged_result_is_made_again_though_another_of_its_run_is_new(tmp_path, monkeypatch):
    put_run(tmp_path, "n", "r", History(register_ops(1, stale=True)))
    rows = rows_of(inline(tmp_path), without=("wall_ns", "cpu_ns", "result_id"))
    path = result_of(tmp_path, LINEAR)
    path.write_bytes(path.read_bytes()[:50])
    real = manifest.checker_version
    monkeypatch.setattr(
        manifest, "checker_version", lambda found: "2" if found.name == "crash" else real(found)
    )
    checked = inline(tmp_path)
    assert rows_of(checked, without=("wall_ns", "cpu_ns", "result_id")) == rows
    assert checked.problems == ()


class Talks:
    """A checker whose result cannot be taken over to the end."""

    name = "talks"
    api_version = 1

    def __init__(self, verdict):
        self.verdict = verdict

    def check(self, history, case, *, time_limit_s):
        return CheckResult("talks", self.verdict, None)


@pytest.mark.parametrize("said", Verdict)
def test_a_checker_that_breaks_off_does_not_make_a_run_valid(tmp_path, monkeypatch, said):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    monkeypatch.setattr(units.Checkers, "bounded", lambda *_: Talks(said))
    expected = "invalid" if said is Verdict.INVALID else "unknown"
    assert set(verdicts(inline(tmp_path)).values()) == {expected}


def planned(store):
    """The units of work of a store that nothing is known of."""
    return manifest.plan(
        scan_store(store).runs,
        {},
        budgets=[units.Budget()],
        checkers=None,
        facts=True,
        problems=units.Problems(),
    ).units


def test_attempts_at_equal_histories_are_counted_apart(tmp_path, monkeypatch):
    for run in "abc":
        put_run(tmp_path, "n", run, History(register_ops(1)))
    real = store_source.Config

    def config(results, **given):
        # Two workers are at the same history of other runs at this moment.
        made = real(results=results, **given)
        for result_id in seen:
            for _ in range(2):
                Marker(Path(results), made.round, result_id).__enter__()
        return made

    seen = [check.result_id for unit in planned(tmp_path) for check in unit.checks]
    assert seen
    monkeypatch.setattr(store_source, "Config", config)
    checked = inline(tmp_path)
    assert not any(CRASHED in row for row in rows_of(checked)["verdicts"])


@pytest.mark.process
def test_all_workers_of_a_pool_work(tmp_path, monkeypatch):
    for n in range(3):
        put_run(tmp_path, "n", f"r{n}", History(register_ops(n)), seed=n)
    real, busy = pool._ready, []

    def ready(workers):
        busy.append(sum(worker.unit is not None for worker in workers))
        return real(workers)

    monkeypatch.setattr(pool, "_ready", ready)
    check_store(tmp_path, executor="pool", jobs=2)
    assert max(busy) == 2


def test_a_spark_job_that_fails_after_its_work_is_done_is_no_failure(tmp_path, monkeypatch):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    work = planned(tmp_path)
    config = Config(results=str(tmp_path / RESULTS), round="r", limit_memory=False)
    executor = SparkExecutor.__new__(SparkExecutor)

    def collect(bins, round_):
        for found in bins:
            list(units.check_units(found.units, config=round_))
        raise RuntimeError("the driver lost the answer")

    monkeypatch.setattr(executor, "_collect", collect, raising=False)
    ended = list(executor.run(pack(work, 2), config))
    assert [done.unit for done in ended] == [unit.unit_id for unit in work]


def test_facts_are_made_anew_when_any_module_behind_them_changes():
    """Whatever of results the modules import belongs to them, but for types."""
    known = {*FACTS_MODULES}
    for name in FACTS_MODULES:
        if not name.startswith("results."):
            continue
        source = ast.parse(Path(__import__(name, fromlist=["x"]).__file__).read_text())
        for node in ast.walk(source):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("results"):
                assert node.module in known, (name, node.module)
    assert {"harness.ops", "harness.store.buckets"} <= known
    assert inspect.getsource(manifest._facts_id).count("FACTS_MODULES") == 1


@pytest.mark.parametrize(
    "module", ["harness.store.parquet", "harness.ops", "results.judging.units"]
)
def test_verdicts_are_made_anew_when_the_code_that_reads_or_asks_changes(
    tmp_path, monkeypatch, module
):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    assert inline(tmp_path, facts=False).results_new == 3
    assert inline(tmp_path, facts=False).results_new == 0
    real = manifest.package_hash
    monkeypatch.setattr(
        manifest, "package_hash", lambda name: "new" if name == module else real(name)
    )
    assert inline(tmp_path, facts=False).results_new == 3


def test_a_foreign_checker_is_asked_again_when_those_it_is_built_on_change(monkeypatch):
    class Foreign:
        name = "foreign"

    before = manifest.checker_version(Foreign())
    real = manifest.package_hash
    monkeypatch.setattr(
        manifest, "package_hash", lambda name: "new" if name == "checkers" else real(name)
    )
    assert manifest.checker_version(Foreign()) != before
    Foreign.CHECKER_VERSION = "7"  # its own promise
    assert manifest.checker_version(Foreign()).endswith(" 7")


def test_a_crash_counts_where_the_store_is_the_folder_of_one_name(tmp_path):
    add_quick(tmp_path, "n", "r")
    crashed = tmp_path / "n" / "crashed"
    crashed.mkdir()
    (crashed / "case.json").write_bytes((tmp_path / "n" / "r" / "case.json").read_bytes())
    for store in (tmp_path, tmp_path / "n"):
        summary, found, _ = report(store)
        assert (summary.crashed, summary.exit_code) == (1, 255)
        assert found == {"n/r": "valid"}


def test_a_store_may_have_any_name(tmp_path):
    store = tmp_path / "s[1] a*b q? it's {x,y}"
    add_quick(store, "n", "r")
    assert report(store)[1] == {"n/r": "valid"}


@pytest.mark.parametrize("buckets", [0, 2])
def test_what_a_worker_lacks_is_no_result(tmp_path, monkeypatch, buckets):
    """An id says nothing of the machine: with the package installed there, the next one judges."""
    history = keyed_history("abc") if buckets else History(register_ops(1))
    put_run(tmp_path, "n", "r", history, buckets=buckets)

    def load(group, name):
        raise UsageError(f"{name} is not installed here")

    with monkeypatch.context() as worker:
        worker.setattr(units, "load_plugin", load)
        checked = inline(tmp_path, checkers=(LINEAR,))
    assert set(verdicts(checked).values()) == {"unknown"}
    assert {(item.kind, item.run) for item in checked.problems} == {("checker", "n/r")}
    again = inline(tmp_path, checkers=(LINEAR,))
    assert set(verdicts(again).values()) == {"valid"}
    assert again.problems == ()


@pytest.mark.parametrize("size", [0, 100, None])
def test_tables_that_were_cut_off_are_gathered_again(tmp_path, size):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    first = inline(tmp_path)
    rows = rows_of(first)
    (path,) = first.tables["ops"]
    if size is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:size])
    assert rows_of(inline(tmp_path)) == rows


def test_a_result_that_came_under_the_name_of_another_is_noticed(tmp_path):
    put_run(tmp_path, "n", "bad", History(register_ops(1, stale=True)))
    put_run(tmp_path, "n", "good", History(register_ops(2)))
    rows = rows_of(inline(tmp_path), without=("wall_ns", "cpu_ns", "result_id"))
    there = [path for path in index(tmp_path / RESULTS).values() if "verdicts" in read_result(path)]
    contents = [path.read_bytes() for path in there]
    for path, content in zip(there, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    shutil.rmtree(tmp_path / RESULTS / "tables")
    checked = inline(tmp_path)
    assert rows_of(checked, without=("wall_ns", "cpu_ns", "result_id")) == rows
    assert (checked.results_new, checked.results_known) == (len(there), 2)  # facts were not moved


def test_a_result_cannot_change_its_mark(tmp_path):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    inline(tmp_path)
    for path in index(tmp_path / RESULTS).values():
        moved = path.rename(path.with_name(path.name.replace(".arrows", ".limited.arrows")))
        with pytest.raises(ValueError, match="damaged"):
            read_result(moved)


@pytest.mark.parametrize("harm", ["flip", "foreign", "lose"])
def test_gathered_tables_that_are_not_what_was_written_are_gathered_again(tmp_path, harm):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    inline(tmp_path)
    put_run(tmp_path, "n", "s", History(register_ops(2, stale=True)))
    rows = rows_of(inline(tmp_path))
    first, second = sorted(
        (tmp_path / RESULTS / "tables").iterdir(), key=lambda path: path.stat().st_mtime_ns
    )
    table = second / "verdicts.parquet"
    if harm == "flip":
        whole = table.read_bytes()
        table.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif harm == "foreign":
        shutil.rmtree(second)
        shutil.copytree(first, second)
    else:
        table.unlink()
    assert rows_of(inline(tmp_path)) == rows


@pytest.mark.slow
def test_a_seed_of_a_soak_that_left_no_run_counts_as_crashed(tmp_path):
    """Otherwise a store of which a soak said "crash" would be reported valid."""
    add_quick(tmp_path, "n", "soak-1-seed-1")
    cases = tmp_path / "n" / ".soak"
    cases.mkdir()
    for seed in (1, 2):  # the first one has a run by now
        (cases / f"soak-1-seed-{seed}.case.json").write_text("{}")
    for store in (tmp_path, tmp_path / "n"):
        summary, found, _ = report(store)
        assert found == {"n/soak-1-seed-1": "valid"}
        assert (summary.crashed, summary.exit_code) == (1, 255)
        ((run, kind, text),) = summary.problems
        assert (run, kind) == ("n/soak-1-seed-2", "seed")
        assert "soak-1-seed-2.case.json" in text
    (cases / "soak-1-seed-2.case.json").unlink()
    assert report(tmp_path)[0].exit_code == 0
