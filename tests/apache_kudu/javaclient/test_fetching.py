"""`harness fetch kudu-client`, and the error of `--client java` without a fetched client."""

import hashlib
import os

import pytest

from harness.cli import main
from harness.errors import UsageError
from targets.apache_kudu import fetching as kudu
from targets.apache_kudu.javaclient import fetching

JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"
COMPILER = '#!/bin/sh\nmkdir "$5"\necho "$@" > "$5/compiled"\n'
BROKEN = "#!/bin/sh\necho 'JavaClient.java:1: error: cannot find symbol' >&2\nexit 1\n"


def program(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    lock, tools = tmp_path / "artefacts.lock", tmp_path / "bin"
    tools.mkdir()
    program(tools, "java", JAVA)
    program(tools, "javac", COMPILER)
    digest = hashlib.sha256(b"jar").hexdigest()
    lock.write_text(f"org.apache.kudu:kudu-client:{fetching.VERSIONS[0]}:jar {digest}\n")
    monkeypatch.setattr(fetching, "_LOCK", lock)
    monkeypatch.setattr(fetching, "download", lambda _, into: into.write_bytes(b"jar"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tools


def refused(capsys, *words):
    assert main(list(words)) == 254
    err = capsys.readouterr().err
    (line,) = [each for each in err.splitlines() if each.startswith("harness: ")]
    return line


def test_the_client_is_fetched_compiled_and_then_complete(machine, capsys):
    with pytest.raises(UsageError, match="harness fetch kudu-client"):
        fetching.require()
    assert main(["fetch", "kudu-client"]) == 0
    java, path = fetching.require()
    assert java == str(machine / "java")
    assert path == fetching.class_path(fetching.folder().place)
    assert "--release 17" in (fetching.folder().place / "classes" / "compiled").read_text()
    program(machine, "javac", BROKEN)
    assert main(["fetch", "kudu-client"]) == 0  # the client is complete, so nothing is compiled
    assert "already" in capsys.readouterr().err


def test_another_program_needs_another_fetch(machine, tmp_path, monkeypatch):
    assert main(["fetch", "kudu-client"]) == 0
    changed = tmp_path / "JavaClient.java"
    changed.write_text("class JavaClient {}")
    monkeypatch.setattr(fetching, "_SOURCE", changed)
    with pytest.raises(UsageError, match="another version"):
        fetching.require()


def test_a_file_with_a_wrong_hash_is_refused(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fetching, "download", kudu.download)
    monkeypatch.setattr(
        kudu.urllib.request, "urlopen", lambda *_, **__: (tmp_path / "other").open("rb")
    )
    (tmp_path / "other").write_bytes(b"another file")
    assert "SHA-256" in refused(capsys, "fetch", "kudu-client")
    assert not fetching.folder().is_complete


def test_a_machine_without_java_or_a_compiler_gets_one_line(machine, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(machine))
    (machine / "javac").unlink()
    assert "openjdk-17-jdk-headless" in refused(capsys, "fetch", "kudu-client")
    (machine / "java").unlink()
    assert "openjdk-17-jre-headless" in refused(capsys, "fetch", "kudu-client")


def test_a_client_against_which_the_program_does_not_compile_is_refused(machine, capsys):
    program(machine, "javac", BROKEN)
    assert "cannot find symbol" in refused(capsys, "fetch", "kudu-client")
    assert not fetching.folder().is_complete
