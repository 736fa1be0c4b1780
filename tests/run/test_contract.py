"""A misspelt member of a plug-in is reported by mypy, or when the class is defined."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.plugins import Checker, Nemesis, Target
from tests.docs.pages import blocks_of

ROOT = Path(__file__).parents[2]
EXAMPLES = (
    "docs/example/abd_register",
    "examples/http_register/http_register",
    "examples/toy_register/toy_register.py",
)
MISSPELT = """
from collections.abc import Mapping, Sequence
from harness.case import Fault
from harness.plugins import Checker, Environment, Nemesis, Reporter, System, Target
from harness.plugins import Workload, override

class A(Target, gruops=("masters",)): ...
class B(Workload, usuall={"rate": 9.0}): ...
class C(Nemesis, client_min=3): ...
class D(Environment, restores_dat=True): ...
class E(Checker, versoin="2"): ...
class F(Reporter, defaults=False): ...
class G(Target, groups="masters"): ...

class H(Target):
    @override
    def permit(self, settings: object) -> Sequence[object]: ...

class I(System):
    @override
    def operation(self) -> Mapping[str, object]: ...

class J(Nemesis):
    @override
    def need_leader(self, fault: Fault) -> bool: ...
"""


def mypy(*arguments, cwd):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent",
         "--ignore-missing-imports", f"--cache-dir={ROOT}/.mypy_cache", *arguments],
        cwd=cwd, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if ": error: " in line]


@pytest.mark.slow
def test_mypy_finds_a_misspelt_member_of_each_kind(tmp_path):
    (tmp_path / "misspelt.py").write_text(MISSPELT)
    errors = mypy("--disable-error-code=empty-body", "misspelt.py", cwd=tmp_path)
    for name in ("gruops", "usuall", "client_min", "restores_dat", "versoin", "defaults"):
        assert [name in line for line in errors].count(True) == 1
    assert sum('"groups" to "__init_subclass__" of "Target" has' in line for line in errors) == 1
    for name in ("permit", "operation", "need_leader"):
        assert sum(f'"{name}" is marked as an override' in line for line in errors) == 1
    assert len(errors) == 10


@pytest.mark.slow
def test_the_examples_pass_mypy():
    assert mypy(*EXAMPLES, cwd=ROOT) == []


@pytest.mark.slow
def test_the_plug_ins_of_the_documentation_pass_mypy(tmp_path):
    blocks = [b for b in blocks_of(ROOT / "docs" / "plugins.md") if b.language == "python"]
    for number, block in enumerate(blocks):
        (tmp_path / f"block_{number}.py").write_text(block.text)
    assert len(blocks) == 4
    assert mypy(*(f"block_{number}.py" for number in range(4)), cwd=tmp_path) == []


def test_a_misspelt_trait_is_refused_and_so_is_one_in_the_class_body():
    with pytest.raises(TypeError, match="no trait 'versoin'; did you mean version"):
        type("Mine", (Checker,), {}, versoin="2")
    with pytest.raises(TypeError, match=r"class Mine\(..., suits_all=...\)"):
        type("Mine", (Nemesis,), {"suits_all": False})
    assert type("Mine", (Checker,), {}, version="2").version == "2"


def test_a_target_that_offers_clients_has_an_option_that_chooses_one():
    mine = type("Mine", (Target,), {"options": ()}, clients={"own": "ours", "other": "theirs"})
    (option,) = mine.options
    assert (option.name, option.default, option.among) == ("client", "own", ("own", "other"))
    assert type("Mine", (Target,), {"options": ()}).options == ()
