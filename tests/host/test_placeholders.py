"""`{package:P}` leads to the same files in both environments, however `P` is installed."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness.cluster import NodeSpec
from harness.environments.docker.image import sources
from harness.environments.docker.image.dockerfiles import built_tag
from harness.environments.host import placeholders
from harness.environments.host.placeholders import check_packages
from harness.environments.process.addresses import fill as fill_for_process
from harness.errors import UsageError
from tests.support.programs import python

ROOT = Path(__file__).parents[2]


def node(*words):
    return NodeSpec(name="n", role="r", ports=(), command=("run", *words))


def in_process(word):
    nothing = {"listen": {}, "connect": {}, "addresses": {}}
    return Path(fill_for_process(word, node(), data=Path("/d"), files=Path("/f"), **nothing))


def in_docker(word):
    return sources.fill(word, node(), {"n": ()})


def containers_have(*words):
    """Return the files that a node with these arguments has in its container, by path."""
    archive = io.BytesIO(sources.archive_of(sources.code_of([node(*words)])))
    with tarfile.open(fileobj=archive) as tar:
        return {f"/{member.name}": tar.extractfile(member).read() for member in tar}


def lay(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def install(folder, distribution, *names):
    """Install files as pip does, next to another distribution."""
    lay(folder, *names, "strange_neighbour.py")
    about = folder / f"{distribution}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
    rows = [*names, f"{about.name}/METADATA", f"{about.name}/RECORD", "../../bin/program"]
    (about / "RECORD").write_text("".join(f"{row},,\n" for row in rows))


LAYOUTS = {
    "module": (("say_m.py", "say_helper.py"), "{package:say_m}/say_m.py", ["say_helper.py"]),
    "beside": (("say_m.py", "say.py"), "{package:say_m}/say.py", ["say_m.py"]),
    "package": (
        ("say_p/__init__.py", "say_p/deep/data.txt", "say_p/run.sh"),
        "{package:say_p}/say_p/run.sh",
        ["say_p/deep/data.txt"],
    ),
    "inner": (
        ("say_p/__init__.py", "say_p/mod.py", "say_p/mod.txt"),
        "{package:say_p.mod}/mod.txt",
        ["say_p/mod.py"],
    ),
    "beside-package": (
        ("say_p/__init__.py", "say_other.py"),
        "{package:say_p}/say_other.py",
        ["say_p/__init__.py"],
    ),
    "namespace": (("say_n/part/x.py",), "{package:say_n.part}/part/x.py", []),
}


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_node_finds_the_same_in_both_worlds(tmp_path, monkeypatch, layout, installed):
    names, word, others = LAYOUTS[layout]
    if installed:
        install(tmp_path, "say", *names)
    else:
        lay(tmp_path, *names)
    monkeypatch.syspath_prepend(tmp_path)

    check_packages([node(word)])
    there = containers_have(word)

    assert there[in_docker(word)] == in_process(word).read_bytes()
    assert {f"{sources.APP_FOLDER}/{name}" for name in others} <= there.keys()
    assert not any("strange" in name or "dist-info" in name for name in there)


def test_in_place_hidden_files_and_environments_stay_out(tmp_path, monkeypatch):
    lay(tmp_path, "say_m.py", ".git/x", "venv/pyvenv.cfg", "venv/x.py", "say.egg-info/x", "d/e.txt")
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    names = {Path(name).name for name in containers_have("{package:say_m}/say_m.py")}

    assert names == {"say_m.py", "e.txt"}


def test_executable_files_stay_executable(tmp_path, monkeypatch):
    lay(tmp_path, "say_p/__init__.py", "say_p/run.sh")
    (tmp_path / "say_p" / "run.sh").chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)

    archive = io.BytesIO(sources.archive_of(sources.code_of([node("{package:say_p}/say_p")])))

    with tarfile.open(fileobj=archive) as tar:
        modes = {Path(member.name).name: member.mode for member in tar}
    assert modes == {"run.sh": 0o755, "__init__.py": 0o644}


@pytest.mark.parametrize(
    "word",
    [
        "{package:say_p}/nothing.py",
        "{package:say_p}/say_q",
        "{package:say_p.nothing}",
        "{package:say_q}",
        "{package:say_m}/Dockerfile",
    ],
)
def test_missing_files_are_refused_in_both_worlds(tmp_path, monkeypatch, word):
    lay(tmp_path, "say_p/__init__.py", "say_m.py")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="say_"):
        check_packages([node(word)])


def test_two_files_cannot_be_one(tmp_path, monkeypatch):
    for folder, text in (("a", "x"), ("b", "x")):
        lay(tmp_path / folder, f"say_{folder}.py")
        (tmp_path / folder / "data.txt").write_text(text)
        monkeypatch.syspath_prepend(tmp_path / folder)
    words = ("{package:say_a}", "{package:say_b}")
    assert len(containers_have(*words)) == 3
    (tmp_path / "b" / "data.txt").write_text("y")
    with pytest.raises(UsageError, match=r"both files would be data\.txt"):
        containers_have(*words)


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    lay(tmp_path, "say_m.py", "a", "b", "c")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(placeholders, "FILES_MAX", 3)
    with pytest.raises(UsageError, match="more than 3 files"):
        check_packages([node("{package:say_m}")])


def test_a_folder_of_everything_makes_no_image(tmp_path, monkeypatch):
    install(tmp_path, "say", "say_m.py", "Dockerfile")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="package data"):
        built_tag("{package:say_m}")


@pytest.mark.slow
def test_a_package_that_is_installed_finds_its_dockerfile(tmp_path):
    source = tmp_path / "source"
    lay(source, "say_p/__init__.py", "say_p/server.py", "say_p/image/Dockerfile")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "say"\nversion = "1"\n'
        '[tool.setuptools]\npackages = ["say_p"]\n'
        'package-data = { say_p = ["image/Dockerfile"] }\n'
    )
    for module in ("__init__", "server"):
        (source / "say_p" / f"{module}.py").write_text("")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    where = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, *where, str(source)], check=True)
    script = (
        "import say_p\n"
        "from harness.cluster import NodeSpec\n"
        "from harness.environments.docker.image.dockerfiles import image_of\n"
        "from harness.environments.docker.image.sources import code_of\n"
        "node = NodeSpec(name='n', role='r', ports=(), dockerfile='{package:say_p}/say_p/image',\n"
        "                command=('python3', '{package:say_p}/say_p/server.py'))\n"
        "print(image_of(node), list(code_of([node])), say_p.__file__)\n"
    )
    result = python(script, cwd=tmp_path, PYTHONPATH=f"{tmp_path / 'site'}:{ROOT}")
    assert "harness-built-image:" in result
    assert str(tmp_path / "site") in result
    assert "server.py" in result
