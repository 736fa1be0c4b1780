"""The installed wheel works in a fresh environment outside of this tree.

The environment has links to the developers' third-party packages, so no network is needed; the
harness comes only from the wheel. The example project of a user, `docs/example`, must pass there
without the source tree.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("harness", "targets", "nemesis", "checkers", "workloads", "results")
TREE = (*PACKAGES, "native", "pyproject.toml", "LICENSE", "README.md", "MANIFEST.in")
NOT_SOURCE = shutil.ignore_patterns("target", "__pycache__", "*.so", "*.pyd", "*.egg-info")
OURS = re.compile(
    r"(__editable__.*|__pycache__|_virtualenv.*|distutils-precedence\.pth"
    r"|(catalog_harness|toy_register|http_register|abd_register)([-.].*)?)"
)
SHIPPED = {
    *(
        ".py",
        ".css",
        ".html",
        ".java",
        ".js",
        ".lock",
        ".properties",
        ".sh",
        ".sql",
        ".svg",
        ".typed",
    ),
    "",
}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def pip(*words, python=sys.executable, cwd=None, **environ):
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *words],
        cwd=cwd, env={**os.environ, "PIP_NO_INDEX": "1", **environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of the tree, so that it contains no leftover of an earlier build.

    The build has no native core, as on a machine without Rust; the installation must work.
    """
    source = tmp_path_factory.mktemp("source")
    for name in (*TREE, "_harness_pytestplugin.py"):
        origin = ROOT / name
        if origin.is_dir():
            shutil.copytree(origin, source / name, ignore=NOT_SOURCE)
        else:
            shutil.copy(origin, source)
    folder = tmp_path_factory.mktemp("wheels")
    pip("wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder),
        cwd=source, CARGO="/nonexistent/cargo")  # fmt: skip
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def installed(tmp_path_factory, wheel):
    """Create a fresh environment with the wheel and the example; return its program folder."""
    home = tmp_path_factory.mktemp("user") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    site = home / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    assert site.is_dir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.fullmatch(entry.name):
            (site / entry.name).symlink_to(entry)
    python = str(home / "bin" / "python")
    source = tmp_path_factory.mktemp("example-source") / "example"
    shutil.copytree(ROOT / "docs" / "example", source, ignore=NOT_SOURCE)
    # Modules are compiled on import; compiling all of them takes longer than these tests.
    pip("install", "--no-deps", "--no-build-isolation", "--no-compile", "--quiet", str(wheel),
        str(source), python=python)  # fmt: skip
    return home / "bin"


@pytest.fixture
def user(installed, tmp_path):
    """Return a function that runs a program of the environment in a user's folder."""
    keep = {name: os.environ[name] for name in ("HOME", "LANG", "JAVA_HOME") if name in os.environ}
    environ = {**keep, "PATH": f"{installed}:/usr/bin:/bin", "VIRTUAL_ENV": str(installed.parent)}

    def go(program, *arguments):
        return subprocess.run(
            [installed / program, *arguments],
            cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return go


# --- the content of the wheel ----------------------------------------------------------------


def test_the_wheel_has_every_file_of_the_tree_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    tree = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix in SHIPPED and "__pycache__" not in path.parts
    }
    assert names == {*tree, "_harness_pytestplugin.py"}


def test_the_licence_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [
            name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")
        ]
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_everything_beside_python_is_of_a_kind_that_is_shipped():
    """Add each new kind of file, such as a template, to the package data and to `SHIPPED`."""
    others = {
        path.suffix
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert others - SHIPPED <= {".so", ".pyd"}


def test_every_entry_point_leads_into_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        (listed,) = [name for name in files if name.endswith("entry_points.txt")]
        lines = archive.read(listed).decode().splitlines()
    values = [line.partition(" = ")[2] for line in lines if " = " in line]
    assert len(values) > 30
    for value in values:
        stem = value.partition(":")[0].replace(".", "/")
        assert {f"{stem}.py", f"{stem}/__init__.py"} & files, value


# --- the installed harness at work -----------------------------------------------------------

WHERE = """
import importlib, json, sys
names = sys.argv[1:]
print(json.dumps({name: importlib.import_module(name).__file__ for name in names}))
"""


def test_installed_modules_come_from_the_wheel(user, installed):
    names = [*PACKAGES, "_harness_pytestplugin", "abd_register"]
    done = user("python", "-c", WHERE, *names)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)
    assert set(files) == set(names)
    for name, file in files.items():
        assert Path(file).is_relative_to(installed.parent), name
        assert not Path(file).is_relative_to(ROOT), name


def test_the_command_works_from_the_wheel(user):
    listed = user("harness", "list")
    assert listed.returncode == 0, listed.stderr
    assert "abd-register" in listed.stdout
    assert "toy-register" not in listed.stdout
    assert "BROKEN" not in listed.stdout
    ran = user("harness", "run", "--env", "sim", "--seed", "1", "--time-limit", "3", "--quiet",
               "--nemesis", "kill-leader", "--interval", "1", "--duration", "1")  # fmt: skip
    assert ran.returncode in {0, 2}, ran.stderr
    assert "failed:" not in ran.stderr  # no reporter failed because a file was missing
    found = re.search(r"; page: (\S+)$", ran.stdout, re.MULTILINE)
    assert found, ran.stdout


def test_the_suite_of_the_example_passes(user, tmp_path):
    shutil.copytree(ROOT / "docs" / "example" / "tests", tmp_path / "tests")
    shutil.copy(ROOT / "docs" / "example" / "pyproject.toml", tmp_path)
    done = user("python", "-m", "pytest", "-p", "no:cacheprovider", "--harness-seed=1", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "harness: seed 1, env as the tests say, else sim" in done.stdout
    assert re.search(r"8 passed, 20 deselected", done.stdout)
    assert re.search(r"8 runs: 1 invalid, 1 not judged, 6 valid; seed 1", done.stdout)


def test_the_example_obeys_the_rules_of_the_simulation(user):
    done = user("python", "-m", "harness.determinism", str(ROOT / "docs/example/abd_register"))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_output_in_the_documentation_is_accurate(user, tmp_path):
    text = (ROOT / "docs" / "pytest.md").read_text()
    suite, _declared, failing, by_hand, skipping = re.findall(
        r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    (tmp_path / "test_shown.py").write_text(f"{suite}\n{failing}\n{by_hand}\n{skipping}")
    done = user("python", "-m", "pytest", "-p", "no:cacheprovider", "--harness-seed=1", "-q")
    assert re.search(r"^1 failed, 4 passed", done.stdout, re.MULTILINE), done.stdout
    assert "harness: INVALID: a promise was broken" in done.stdout
    assert "FAILED test_shown.py::test_lazy_reads_under_late_frames" in done.stdout
    assert re.search(r"linearizable-register +invalid +not linearizable", done.stdout)
    (line,) = re.findall(r"^replay +harness (.*)$", done.stdout, re.MULTILINE)
    replayed = user("harness", *line.split(), "--json", "--quiet")
    assert replayed.returncode == 1, replayed.stderr
    (record,) = (tmp_path / "store").glob("test_shown.*/2*/run.json")
    digest = json.loads(record.read_text())["digest"]
    assert json.loads(replayed.stdout)["history_sha256"] == digest
