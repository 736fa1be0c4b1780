"""`harness bisect` finds the bad commit in a small repository, and removes its work trees."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.bisect.at_commit import AtCommit, SeedRun
from harness.bisect.repository import Mark, Repository
from harness.bisect.search import bisect
from harness.case import Case
from harness.cli import main
from harness.errors import EXIT_USAGE, UsageError
from harness.trials.trials import Kind
from tests.support.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "docs" / "example"
CASE = Case(
    seed=1, target="abd-register", workload="register", nemeses=("none",), time_limit_s=1.0, rate=20
)
RIGHT = 'request["stamp"] > kept["stamp"]'
WRONG = 'request["stamp"] < kept["stamp"]'
STALE = Kind("linearizable-register", "stale-read")
BROKEN = "this is no Python"
COMMITS = 64
PLANTED = 23


class Clone:
    """A repository that contains the example target; tests add commits to it."""

    def __init__(self, folder):
        self.folder = folder
        self.node = folder / "abd_register" / "node.py"
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.git("init", "-q")
        self.git("add", ".")

    def git(self, *words):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        command = ["git", *identity, "-C", str(self.folder), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, subject, *, old=RIGHT, new=RIGHT):
        """Commit a change of the node's file: replace `old` by `new`, and append a comment."""
        text = self.node.read_text().replace(old, new)
        self.node.write_text(f"{text}# {subject}\n")
        self.git("commit", "-q", "-a", "-m", subject)
        return self.git("rev-parse", "HEAD")

    @property
    def work_trees(self):
        return self.git("worktree", "list", "--porcelain").count("worktree ")


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path / "clone")


@pytest.fixture
def case_file(tmp_path):
    file = tmp_path / "case.json"
    file.write_bytes(CASE.encode())
    return file


def search(clone, good, bad, **options):
    repository = Repository(clone.folder)
    ends = repository.commit(good, "GOOD"), repository.commit(bad, "BAD")
    return bisect(repository, *ends, CASE, **{"seeds": [1], "jobs": 1, **options})


@pytest.mark.slow
def test_a_planted_commit_is_found_among_64_in_six_tests(clone, case_file, capsys):
    hashes = [
        clone.commit(f"change {number}", new=WRONG if number == PLANTED else RIGHT)
        for number in range(COMMITS)
    ]
    words = ["--case", str(case_file), "--repo", str(clone.folder), "--seeds", "1", "--json"]
    assert main(["bisect", hashes[0], hashes[-1], *words]) == 0
    report = msgspec.json.decode(capsys.readouterr().out)
    assert report["first_bad"]["hash"] == hashes[PLANTED]
    assert report["first_bad"]["subject"] == f"change {PLANTED}"
    assert Kind(report["checker"], report["rule"]) == STALE
    assert len(report["tested"]) - 2 <= 6
    assert (clone.work_trees, clone.git("status", "--porcelain")) == (1, "")
    assert clone.git("for-each-ref", "refs/bisect") == ""


@pytest.mark.slow
def test_a_commit_at_which_the_case_cannot_run_is_skipped(clone):
    first = clone.commit("good")
    clone.commit("no Python", new=BROKEN)
    bad = clone.commit("bad", old=BROKEN, new=WRONG)
    found = search(clone, first, bad)
    assert found.first_bad is None
    assert Mark.SKIP in [each.result for each in found.tested]
    assert bad in [each.hash for each in found.candidates]


@pytest.mark.slow
def test_ends_that_are_not_good_and_bad_are_refused(clone):
    good, still_good = clone.commit("good"), clone.commit("still good")
    with pytest.raises(UsageError, match="is not bad"):
        search(clone, good, still_good)
    bad, still_bad = clone.commit("bad", new=WRONG), clone.commit("still bad")
    with pytest.raises(UsageError, match="is not good"):
        search(clone, bad, still_bad)
    assert clone.work_trees == 1


@pytest.mark.slow
def test_a_setup_that_fails_is_quoted(clone):
    good, bad = clone.commit("good"), clone.commit("bad", new=WRONG)
    with pytest.raises(UsageError, match="no compiler here"):
        search(clone, good, bad, setup="echo no compiler here >&2; exit 3")


def test_ends_must_be_two_commits_on_one_path(clone, case_file, capsys):
    good, bad = clone.commit("good"), clone.commit("bad")
    words = ["--case", str(case_file), "--repo", str(clone.folder)]
    assert main(["bisect", bad, good, *words]) == EXIT_USAGE
    assert "is not an ancestor" in capsys.readouterr().err
    assert main(["bisect", good, good, *words]) == EXIT_USAGE
    assert main(["bisect", "--", "--all", bad, *words]) == EXIT_USAGE
    assert main(["bisect", "v0.0", bad, *words]) == EXIT_USAGE
    assert "GOOD is 'v0.0'" in capsys.readouterr().err
    assert main(["bisect", good, bad, *words, "--seeds", "0"]) == EXIT_USAGE


@pytest.mark.slow
def test_ctrl_c_leaves_no_work_tree_and_no_process(clone, case_file, tmp_path):
    good, bad = clone.commit("good"), clone.commit("bad", new=WRONG)
    words = [sys.executable, "-P", "-m", "harness", "bisect", good, bad, "--case", str(case_file)]
    mark = tmp_path / "started"
    setup = f"echo $$ > {mark}.part; mv {mark}.part {mark}; sleep 1000"
    search_it = subprocess.Popen(
        [*words, "--repo", str(clone.folder), "--setup", setup], stderr=subprocess.DEVNULL
    )
    wait_until(lambda: mark.exists() or search_it.poll() is not None)
    assert search_it.poll() is None
    search_it.send_signal(signal.SIGINT)
    assert search_it.wait(60) == 130
    assert clone.work_trees == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def judged(seed, *kinds, by=(STALE.checker,)):
    return SeedRun(seed, kinds, by)


def test_a_commit_is_bad_even_if_another_seed_cannot_run():
    crash = SeedRun(1, trouble="seed 1 ended with 255")
    assert AtCommit((crash, judged(2, STALE))).mark(STALE) is Mark.BAD
    assert AtCommit((crash, judged(2))).mark(STALE) is Mark.SKIP
    assert AtCommit((judged(2, Kind("crash", "exit")),)).mark(STALE) is Mark.GOOD


def test_a_commit_is_good_only_if_the_checker_judged_every_seed():
    # a commit may lack the checker; it is then not good, since its code cannot see the failure
    for blind in (judged(2, by=()), judged(2, by=("crash",))):
        at_commit = AtCommit((judged(1), blind))
        assert at_commit.mark(STALE) is Mark.SKIP
        assert STALE.checker in at_commit.doubt(STALE)
        assert "seed 2" in at_commit.doubt(STALE)
