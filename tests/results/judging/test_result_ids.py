"""A result is computed again exactly if the code that computes it has changed."""

import ast
from pathlib import Path

import pytest

from harness.ops import History
from harness.plugins import Checker
from results.judging import result_ids
from results.judging.result_ids import FACTS_MODULES
from tests.results.judging.stores import judge_store, put_run, register_ops

pytestmark = pytest.mark.lake

CHECKERS = ("linearizable-register", "crash", "stats")


def test_facts_are_made_again_when_any_module_behind_them_changes():
    known = {*FACTS_MODULES}
    for name in FACTS_MODULES:
        if not name.startswith("results.facts."):
            continue
        source = ast.parse(Path(__import__(name, fromlist=["x"]).__file__).read_text())
        for node in ast.walk(source):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("results"):
                assert node.module in known, (name, node.module)
    assert {"harness.ops", "harness.store.buckets"} <= known


@pytest.mark.parametrize(
    "module", ["harness.ops", "results.lake.tables.rebuild", "results.judging.verdict_rows"]
)
def test_verdicts_are_made_again_when_the_code_that_reads_or_judges_changes(
    tmp_path, monkeypatch, module
):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    given = {"facts": False, "checkers": CHECKERS}
    assert judge_store(tmp_path, **given).checked.results_new == 3
    assert judge_store(tmp_path, **given).checked.results_new == 0
    real = result_ids.package_hash
    monkeypatch.setattr(
        result_ids, "package_hash", lambda name: "new" if name == module else real(name)
    )
    assert judge_store(tmp_path, **given).checked.results_new == 3


def test_a_foreign_checker_is_asked_again_when_those_it_is_built_on_change(monkeypatch):
    class Foreign(Checker):
        name = "foreign"

        def check(self, history, case, *, time_limit_s):
            raise AssertionError("only its version is read")

    before = result_ids.checker_version(Foreign())
    real = result_ids.package_hash
    monkeypatch.setattr(
        result_ids, "package_hash", lambda name: "new" if name == "checkers" else real(name)
    )
    assert result_ids.checker_version(Foreign()) != before
    Foreign.version = "7"  # the checker's own version
    assert result_ids.checker_version(Foreign()).endswith(" 7")
