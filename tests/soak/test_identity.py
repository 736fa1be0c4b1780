"""The digests that identify a soak cover exactly those inputs that can change results."""

import importlib
import sys

import msgspec
import pytest

from harness.case import Case
from harness.soak import identity
from harness.soak.identity import code_digest, soak_id

TOY = Case(seed=0, target="toy-register", workload="register", time_limit_s=1.0)


def ids(case=TOY, environment="sim", label=None):
    return soak_id(case, environment=environment, label=label)


def test_seed_and_schedule_are_not_in_it():
    assert ids(msgspec.structs.replace(TOY, seed=77, faults=())) == ids()


@pytest.mark.parametrize(
    "change",
    [
        {"label": "x"},
        {"environment": "process"},
        {"case": msgspec.structs.replace(TOY, rate=5.0)},
        {"case": msgspec.structs.replace(TOY, bugs=("b",))},
        {"case": msgspec.structs.replace(TOY, nemeses=("kill-leader",))},
        {"case": msgspec.structs.replace(TOY, knobs={"latency": "tail"})},
        {"case": msgspec.structs.replace(TOY, workload_options={"keys": 3})},
    ],
)
def test_everything_else_is(change):
    assert ids(**change).case != ids().case


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Add a package that the test can change to the packages that the digest covers."""
    folder = tmp_path / "part"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("x = 1\n")
    (folder / "inner" / "deep.py").write_text("y = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield folder
    sys.modules.pop("part", None)


def digest(name="part"):
    identity._package_digest.cache_clear()
    return identity._package_digest(name)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "inner" / "deep.py").write_text("y = 2\n"),
        lambda folder: (folder / "inner" / "deep.py").rename(folder / "inner" / "other.py"),
        lambda folder: (folder / "inner" / "deep.py").unlink(),
        lambda folder: (folder / "native.so").write_bytes(b"\x7fELF"),
    ],
)
def test_any_change_of_the_code_shows(package, change):
    before = digest()
    assert digest() == before
    change(package)
    assert digest() != before


def test_compiled_and_hidden_files_are_no_code(package):
    before = digest()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_bytes(b"1")
    (package / ".__init__.py.swp").write_bytes(b"1")
    assert digest() == before


def test_a_module_alone_is_code_as_well(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "single.py").write_text("x = 1\n")
    importlib.invalidate_caches()
    before = digest("single")
    (tmp_path / "single.py").write_text("x = 2\n")
    assert digest("single") != before


def taking_part(case, monkeypatch):
    seen = set()

    def look(name):
        seen.add(name)
        return "-"

    monkeypatch.setattr(identity, "_package_digest", look)
    code_digest(case, "sim")
    return seen


def test_the_packages_of_the_plug_ins_take_part_foreign_ones_too(monkeypatch):
    assert taking_part(TOY, monkeypatch) == {"harness", "toy_register", "workloads", "checkers"} | {
        "nemesis"
    }
    kudu = taking_part(Case(seed=0), monkeypatch)
    assert kudu == {"harness", "targets", "workloads", "checkers", "nemesis"}
