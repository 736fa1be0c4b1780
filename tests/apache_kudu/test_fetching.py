"""`harness fetch kudu` downloads Kudu, checks its hash, unpacks it, and reports errors."""

import hashlib
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.cli import main
from harness.errors import UsageError
from targets import artefacts
from targets.apache_kudu import fetching
from targets.apache_kudu.fetching import MIRROR, VERSIONS, require
from targets.artefacts import lock_of

VERSION = VERSIONS[0]
LIBRARIES = ("libkudu.so", "libkrb5.so.3", "libgssapi_krb5.so.2", "libk5crypto.so.3")


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def repository(tmp_path, monkeypatch):
    root, lock = tmp_path / "repository", tmp_path / "artefacts.lock"
    archive = root / f"org/apache/kudu/kudu-binary/{VERSION}"
    archive.mkdir(parents=True)
    archive /= f"kudu-binary-{VERSION}-linux-x86_64.jar"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("META-INF/kudu.properties", "x=y")
        for name in ("bin/kudu-master", "bin/kudu-tserver", "www/kudu.css"):
            file.writestr(f"kudu-{VERSION}/{name}", "#!/bin/sh\n")
        for name in (*LIBRARIES, "libkrb5support.so.0", "sasl2/libplain.so"):
            file.writestr(f"kudu-{VERSION}/lib/{name}", "")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    lock.write_text(f"org.apache.kudu:kudu-binary:{VERSION}:jar:linux-x86_64 {digest}\n")
    monkeypatch.setattr(fetching, "_LOCK", lock)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(root)))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    monkeypatch.setenv(MIRROR, f"http://127.0.0.1:{server.server_port}/")
    yield archive
    server.shutdown()
    thread.join()
    server.server_close()


def refused(capsys, *words):
    assert main(["fetch", "kudu", *words]) == 254
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [each for each in err.splitlines() if each.startswith("harness: ")]
    return line


def test_the_list_pins_every_version():
    wanted = lock_of(fetching._LOCK.read_text())
    assert [each.version for each in wanted] == list(VERSIONS) == ["1.18.1", "1.17.1", "1.16.0"]
    assert {len(each.sha256) for each in wanted} == {64}


def test_images_have_the_terminal_library_of_their_version():
    wanted = {"1.16.0": "libtinfo5"}
    for version in VERSIONS:
        (package,) = {word for word in fetching._dockerfile(version).split() if "tinfo" in word}
        assert package == wanted.get(version, "libtinfo6")


def test_what_is_fetched_runs_and_is_fetched_once(repository, capsys):
    assert main(["fetch", "kudu"]) == 0
    place = require(VERSION)
    assert capsys.readouterr().out == f"{place}\n"
    assert {path.name for path in place.iterdir()} == {
        *("bin", "lib", "www", "Dockerfile"),
        artefacts.STAMP,
    }
    assert all(path.stat().st_mode & 0o111 for path in (place / "bin").iterdir())
    # Debian's Kerberos libraries replace the clashing ones in the artefact.
    kept = {path.name for path in (place / "lib").iterdir()}
    assert kept == {"libkudu.so", "libkrb5support.so.0", "sasl2"}
    repository.unlink()
    assert main(["fetch", "kudu", VERSION]) == 0  # nothing is downloaded
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_another_file_is_refused_and_leaves_nothing(repository, capsys):
    repository.write_bytes(repository.read_bytes()[:-1])
    assert "SHA-256" in refused(capsys)
    assert list(fetching.folder(VERSION).place.parent.iterdir()) == []


def test_what_cannot_be_reached_is_named(repository, capsys, monkeypatch):
    repository.unlink()
    line = refused(capsys)
    assert "404" in line
    assert MIRROR in line
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:9")
    assert "http://127.0.0.1:9/org/apache/kudu" in refused(capsys)
    monkeypatch.setenv(MIRROR, "ftp://there")
    assert "'ftp://there'" in refused(capsys)
    assert "'1.15.0'" in refused(capsys, "1.15.0")
    assert list(fetching.folder(VERSION).place.parent.iterdir()) == []


def test_an_old_cache_is_refused_and_fetched_anew(repository, monkeypatch):
    del repository
    with pytest.raises(UsageError, match=f"not downloaded.*harness fetch kudu {VERSION}"):
        require(VERSION)
    fetching.fetch(print)
    monkeypatch.setattr(fetching, "_UNPACKED", fetching._UNPACKED + 1)
    with pytest.raises(UsageError, match="another version"):
        require(VERSION)
    fetching.fetch(print)
    require(VERSION)


def test_missing_libraries_are_named_with_their_packages(repository, capsys, monkeypatch, tmp_path):
    del repository
    program = tmp_path / "bin" / "ldd"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho '	libtinfo.so.5 => not found'\necho '	libodd.so => not found'\n"
        "echo '	libc.so.6 => /lib/libc.so.6 (0x0)'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    line = refused(capsys)
    assert "libodd.so, libtinfo.so.5" in line
    assert "apt install libtinfo5)" in line
