"""Run folders are archives in an object store, whose files cannot escape the folder."""

import zipfile

import pytest

from harness.errors import HistoryError
from results.lake.transfer import folders
from results.lake.transfer.folders import ARCHIVE, fetch_folder, unpack, writer_to
from tests.results.lake.toy import lake_at
from tests.support.object_store import BUCKET, options_for, s3_server

FILES = {
    "case.json": b"{}",
    "logs/m1.log": b"started\n" * 100,
    "report.html": b"<html>",
    "results.json": b"[]",
}


def read(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def archive_in(folder, files):
    folder.mkdir()
    with zipfile.ZipFile(folder / ARCHIVE, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return folder


@pytest.mark.lake
@pytest.mark.s3
def test_unaddressed_files_are_one_archive_in_a_bucket(tmp_path):
    with s3_server() as endpoint:
        lake = lake_at(f"s3://{BUCKET}/kept", storage_options=options_for(endpoint))
        files, write = lake.place.files, writer_to(lake)

        def content(name):
            with files.open_input_stream(f"folders/n/r1/{name}") as source:
                return source.read()

        write("folders/n/r1", FILES)
        first = content(ARCHIVE)
        write("folders/n/r1", FILES)
        assert content(ARCHIVE) == first
        assert content("report.html") == b"<html>"
        assert lake.place.listed("folders/n/r1") == [
            (ARCHIVE, len(first)), ("report.html", len(b"<html>")),
        ]  # fmt: skip
        (tmp_path / "case.json").write_bytes(b"ours")
        fetch_folder(files, "folders/n/r1", tmp_path)
        assert read(tmp_path) == {**FILES, "case.json": b"ours"}

        write("folders/n/r2", {"report.html": b"<html>"})
        assert [name for name, _ in lake.place.listed("folders/n/r2")] == ["report.html"]


@pytest.mark.lake
def test_a_folder_of_a_disk_is_a_folder(tmp_path):
    lake = lake_at(str(tmp_path / "lake"))
    writer_to(lake)("folders/n/r1", FILES)
    assert read(tmp_path / "lake/folders/n/r1") == FILES


def test_nothing_gets_out_of_an_archive(tmp_path):
    outside = tmp_path / "outside"
    files = {"../outside": b"x", str(outside): b"x", "logs/../../outside": b"x", "a": b"a"}
    folder = archive_in(tmp_path / "run", files)
    unpack(folder)
    assert not outside.exists()
    assert read(folder) == {"a": b"a"}


@pytest.mark.parametrize("bound", ["FILES_MAX", "BYTES_MAX"])
def test_an_archive_beyond_all_measure_is_refused(bound, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, bound, 1)
    folder = archive_in(tmp_path / "run", {"a": b"aa", "b": b"bb"})
    with pytest.raises(HistoryError):
        unpack(folder)
    assert [*read(folder)] == [ARCHIVE]


@pytest.mark.parametrize("files", [None, {"a": b"a", "a/b": b"b"}, {"a": b"a", "a/b/c": b"c"}])
def test_invalid_archives_and_blocked_folders_are_named(files, tmp_path):
    folder = archive_in(tmp_path / "run", files or {})
    if files is None:
        (folder / ARCHIVE).write_bytes(b"torn")
    with pytest.raises(HistoryError, match=ARCHIVE):
        unpack(folder)
