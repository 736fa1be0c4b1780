"""`harness why` explains a failed run or case, and refuses wrong calls."""

import json

import msgspec
import pytest

from harness.cli import main
from harness.errors import EXIT_USAGE
from harness.ops import Verdict
from harness.store import load_run
from results.why.answer import load_why
from tests.results.run.page.runs import small_run, stale_read, write_run

CASE = (
    "--env sim --bug NO-LEASE --nemesis partition-leader --time-limit 6 --interval 4 --duration 3 "
    "--rate 20 --quiet --reporters none"
)


@pytest.mark.slow
def test_a_run_is_explained_and_the_answer_does_not_depend_on_the_workers(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *CASE.split(), "--seed", "2", "--store", "store"]) == 1
    folder = (tmp_path / "store/ddl-partition-leader/latest").resolve()
    options = ["--seeds", "1", "--reseeds", "2"]
    capsys.readouterr()
    assert main(["why", str(folder), *options, "--jobs", "2", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    why = load_why(folder, load_run(folder).history.digest())
    assert why is not None
    assert first["trials"] == why.trials > len(why.causes)
    assert len(why.points) >= 4
    for name in ("why.html", "report.html"):
        assert (folder / name).is_file()
    trials = folder.parent / ".why-trials"
    before = trials.stat().st_size
    assert main(["why", str(folder), *options, "--part", "causes"]) == 0
    assert trials.stat().st_size == before  # all trials were remembered
    assert "the bug NO-LEASE" in capsys.readouterr().out
    trials.unlink()
    assert main(["why", str(folder), *options, "--part", "time", "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == first["points"]


def test_a_run_that_did_not_fail_is_refused(tmp_path, capsys):
    history = small_run()
    passed = msgspec.structs.replace(stale_read(history), verdict=Verdict.VALID)
    folder = write_run(tmp_path, history, [passed])
    assert main(["why", str(folder)]) == EXIT_USAGE
    assert "invalid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "quoted"),
    [
        ("nowhere", "'nowhere'"),
        ("nowhere --seeds 0", "--seeds is 0"),
        ("nowhere --reseeds 2000", "--reseeds is 2000"),
        ("nowhere --cpu 0", "--cpu is 0"),
        ("nowhere --jobs 0", "--jobs is 0"),
        ("nowhere --part all", "'all'"),
    ],
)
def test_wrong_calls_are_refused(words, quoted, capsys):
    assert main(["why", *words.split()]) == EXIT_USAGE
    assert quoted in capsys.readouterr().err
