"""`--output` replaces a regular file as a whole. Anything else is written to, never replaced."""

import gzip
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from harness.cli import main
from harness.support.atomic_file import descriptor_of, replacing

VERBS = pytest.mark.parametrize("verb", ["trace", "export"])


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    link, target = tmp_path / "link.xml", tmp_path / "kept" / "junit.xml"
    target.parent.mkdir()
    link.symlink_to(target)
    for text in ("first", "second"):
        with replacing(link) as file:
            file.write(text)
        assert (link.readlink(), target.read_text()) == (target, text)
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_an_open_file_is_written_on_where_it_stands(tmp_path, name):
    with (tmp_path / "out").open("w") as opened:
        print("before", file=opened, flush=True)
        with replacing(Path(name.format(opened.fileno()))) as file:
            print("{}", file=file)
        print("after", file=opened, flush=True)
    assert (tmp_path / "out").read_text() == "before\n{}\nafter\n"
    assert descriptor_of(Path("/dev/stdout")) == 1
    assert descriptor_of(Path("/dev/null")) is None


def test_links_that_lead_nowhere_are_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"), replacing(tmp_path / "loop"):
        pass
    assert (tmp_path / "loop").is_symlink()


def write_half(path, failure):
    with replacing(path) as file:
        file.write("new")
        raise failure


@pytest.mark.parametrize("failure", [OSError, ValueError, KeyboardInterrupt])
def test_a_failure_leaves_only_the_old_file(failure, tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(failure):
        write_half(path, failure)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


# --- the verbs that take --output ------------------------------------------------------------


@VERBS
def test_a_pipe_is_written_to_and_stays_one(verb, run_folder, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    code = main([verb, str(run_folder), "--output", str(pipe)])
    assert pipe.is_fifo()
    reader.join(timeout=60)
    assert (code, bool(read and read[0])) == (0, True)


@VERBS
def test_a_device_stays_one(verb, run_folder, tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        device.open("wb").close()
    except OSError:
        pytest.skip("only root may make devices, and only where the file system takes them")
    assert main([verb, str(run_folder), "--output", str(device)]) == 0
    assert device.is_char_device()
    assert list(tmp_path.iterdir()) == [device]


@VERBS
def test_a_link_given_as_output_stays_one(verb, run_folder, tmp_path):
    (tmp_path / "link").symlink_to("file")
    assert main([verb, str(run_folder), "--output", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").stat().st_size > 0
    assert {path.name for path in tmp_path.iterdir()} == {"link", "file"}


def test_a_trace_on_stdout_is_nothing_but_the_trace(run_folder, capfd):
    assert main(["trace", str(run_folder), "--output", "/dev/fd/1"]) == 0
    assert json.loads(capfd.readouterr().out)["traceEvents"]


def test_a_packed_trace_goes_through_a_link(run_folder, tmp_path):
    (tmp_path / "link.gz").symlink_to("file")
    assert main(["trace", str(run_folder), "--output", str(tmp_path / "link.gz")]) == 0
    assert json.loads(gzip.decompress((tmp_path / "file").read_bytes()))["traceEvents"]


def test_an_export_that_fails_leaves_the_old_file(run_folder, tmp_path, monkeypatch):
    def failing(_history, file):
        file.write("half")
        raise OSError(28, "No space left on device")

    (tmp_path / "h.edn").write_text("old")
    monkeypatch.setattr("harness.cli.check.export_verb.write_edn", failing)
    assert main(["export", str(run_folder), "--output", str(tmp_path / "h.edn")]) == 255
    assert (tmp_path / "h.edn").read_text() == "old"
