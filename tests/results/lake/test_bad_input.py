"""A lake that refuses or fails prints one clear line. Nothing is lost, and a retry succeeds."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from harness.cli import main
from harness.errors import InfrastructureError, UsageError
from results.lake.log.lake import Lake
from results.lake.log.location import Place
from results.lake.log.storage_errors import AgainError, Patience, said_of
from results.lake.tables.schema import SCHEMA_VERSION
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import check
from results.lake.upkeep.vacuum import Vacuumed, vacuum
from tests.results.lake.toy import SCHEMAS, contents, created_at_once, damage, lake_at, rows

pytestmark = pytest.mark.lake

IMPATIENT = Patience(attempts_max=1)


def lines(capsys):
    """Return the error output of a command that fails."""
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("a\nb", "characters"),
        ("s3:/bucket/lake", "no // behind"),
        ("s3:bucket", "no // behind"),
        ("ftp:/host/lake", "no // behind"),
        ("s3://", "names no place"),
        ("s3:///lake", "names no place"),
        ("s3://bucket", "names no place"),
        ("ftp://host/lake", "not at ftp://"),
        ("https://host/bucket/lake", "not at https://"),
        ("s3://bucket/lake?versionId=1", "has \\? or #"),
        ("s3://bucket/lake?X-Amz-Signature=secret", "has \\? or #"),
        ("ftp://key:secret@host/lake", "not at ftp://"),
        ("s3://bucket/a#b", "has \\? or #"),
        ("s3://localhost:9000/bucket/lake", "AWS_ENDPOINT_URL"),
        ("s3://key:se/secret@bucket/lake", "AWS_ACCESS_KEY_ID"),
        ("file://key:secret@host/lake", "names a machine"),
        ("s3://key:secret@bucket/lake", "AWS_ACCESS_KEY_ID"),
        ("s3://[bucket/lake", "is not a URI"),
        ("file://host/lake", "names a machine"),
        ("a%20b/lake", "'%20' in it"),
        ("file:///a%2541", "'%41' in it"),
        ("s3://bucket/a%2Fb", "'%2F' in it"),
        ("a\\b", "backslash"),
        ("s3://bucket/a/../b", "\\.\\. in its prefix"),
        ("s3://bucket/a/./b", "\\.\\. in its prefix"),
        ("s3://bucket/a//b", "an empty part"),
    ],
)
def test_a_uri_that_names_no_place_is_refused(tmp_path, monkeypatch, uri, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words) as refused:
        Place(uri)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_uris_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for uri in ("a:b", "./s3:x/y", "50% #1?", "9%", f"file://{tmp_path}/a%20b"):
        lake_at(uri).append(rows(["r1"]))
    lake_at(str(tmp_path / "s3://x")).append(rows(["r1"]))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["50% #1?", "9%", "a b", "a:b", "s3:", "s3:x"]


def test_library_errors_are_shown_without_passwords():
    error = OSError("GET http://me:hunter2@host:9/b/x@1?X-Amz-Signature=abc failed")
    said = str(said_of(error, "s3://b/lake"))
    assert said == "GET http://...@host:9/b/x@1?... failed"


def test_writers_that_could_overwrite_each_other_are_refused():
    with pytest.raises(UsageError, match="aws_conditional_put is disabled"):
        Place("s3://bucket/lake", {"AWS_CONDITIONAL_PUT": "disabled"})


def open_toy(path, *, create):
    return Lake.open(str(path), schemas=SCHEMAS, version=1, patience=IMPATIENT, create=create)


def foreign_table(path):
    import deltalake

    deltalake.write_deltalake(str(path), pa.table({"run": ["x"]}))


def foreign_folder(path):
    path.mkdir(parents=True)
    (path / "part-0.parquet").write_bytes(b"somebody's")


@pytest.mark.parametrize("table", list(SCHEMAS))
@pytest.mark.parametrize("foreign", [foreign_table, foreign_folder])
def test_a_foreign_thing_of_the_name_of_a_table_is_refused_and_untouched(tmp_path, table, foreign):
    foreign(tmp_path / "place" / table)
    before = sorted(tmp_path.rglob("*"))
    for create, words in {True: "name an", False: "name an|no lake"}.items():
        with pytest.raises(UsageError, match=words):
            open_toy(tmp_path / "place", create=create)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_foreign_table_beside_the_tables_is_left_alone(tmp_path):
    lake_at(tmp_path / "lake").append(rows(["r1"]))
    foreign_table(tmp_path / "lake" / "theirs")
    before = sorted((tmp_path / "lake" / "theirs").rglob("*"))
    lake = lake_at(tmp_path / "lake")
    compact(lake)
    vacuum(lake, grace_hours=0)
    assert sorted((tmp_path / "lake" / "theirs").rglob("*")) == before


@pytest.mark.parametrize(
    ("more", "advice"),
    [(1, "install a newer harness"), (-1, "harness ingest STORE --lake URI")],
)
def test_a_lake_of_another_version_is_refused(tmp_path, capsys, more, advice):
    uri, store = str(tmp_path / "lake"), str(tmp_path / "store")
    Lake.open(uri, version=SCHEMA_VERSION + more, create=True)
    (tmp_path / "store").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for words in (
        *(["lake", action, uri] for action in ("compact", "vacuum", "check")),
        ["lake", "export", uri, "--store", str(tmp_path / "s")],
        ["ingest", store, "--lake", uri],
        ["report", uri, "--output", str(tmp_path / "report")],
    ):
        assert main(words) == 254
        (line,) = lines(capsys)
        assert advice in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_lake_whose_runs_were_removed_is_not_begun_again(tmp_path):
    lake_at(tmp_path / "lake").append(rows(["r1"]))
    (tmp_path / "lake" / "runs").rename(tmp_path / "runs")
    with pytest.raises(InfrastructureError, match="lacks runs"):
        lake_at(tmp_path / "lake")
    (tmp_path / "runs").rename(tmp_path / "lake" / "runs")
    assert contents(lake_at(tmp_path / "lake")) == {"r1"}


def test_an_upload_that_was_torn_and_one_that_lands_late_are_in_no_log(tmp_path):
    lake = lake_at(tmp_path / "lake")
    writing, tried = lake.place.writing, []

    def write(table, name):
        tried.append((table, name))
        if [one for one, _ in tried].count(table) == 1:
            (tmp_path / "lake" / table / name).write_bytes(b"half of it")
            raise AgainError("a 503")
        return writing(table, name)

    lake.place.writing = write
    lake.append(rows(["r1", "r2"]))
    lake.place.writing = writing
    assert len(set(tried)) == len(tried) == 6
    assert contents(lake) == {"r1", "r2"}
    assert damage(lake) == []
    vacuum(lake, grace_hours=0)
    assert check(lake) == []


def test_a_write_that_fails_leaves_no_half_file(tmp_path):
    place = Place(str(tmp_path / "lake"))
    (tmp_path / "lake" / "runs").mkdir(parents=True)

    def fail():
        with place.writing("runs", "x.parquet") as sink:
            sink.write(b"half of it")
            raise UsageError("no")

    with pytest.raises(UsageError):
        fail()
    assert place.listed("runs") == []


@pytest.mark.parametrize("torn", [0.5, 0.99])
def test_a_torn_log_is_damage_and_not_asked_again(tmp_path, torn):
    lake_at(tmp_path / "lake").append(rows(["r1"]))
    path = tmp_path / "lake" / "operations" / "_delta_log" / f"{1:020}.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * torn)])
    with pytest.raises(InfrastructureError, match=r"the log of .*operations is damaged") as refused:
        lake_at(tmp_path / "lake")
    assert "\n" not in str(refused.value)
    path.write_bytes(whole)
    assert contents(lake_at(tmp_path / "lake")) == {"r1"}


def test_check_finds_a_commit_that_a_power_cut_emptied(tmp_path):
    lake_at(tmp_path / "lake").append(rows(["r1"]))
    (tmp_path / "lake" / "operations" / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    (finding,) = damage(lake_at(tmp_path / "lake"))
    assert (finding.table, "1 commit empty" in finding.text) == ("operations", True)


@pytest.mark.parametrize(("listing", "at"), [(True, 1), (False, 2)])
def test_a_check_finds_no_damage_while_files_are_replaced_and_removed(tmp_path, listing, at):
    lake, other = lake_at(tmp_path / "lake"), lake_at(tmp_path / "lake")
    for run in ("r1", "r2", "r3"):
        lake.append(rows([run]))
    # The table `operations` is read last, by the snapshot and by the check.
    place, name = (lake.place, "listed") if listing else (lake.logs["operations"], "refresh")
    whole, calls = getattr(place, name), []

    def meanwhile(*given):
        found = None if listing else whole()
        calls.append(given)
        if len(calls) == at:
            compact(other)
            assert vacuum(other, grace_hours=0) != Vacuumed((), (), ())
        return whole(*given) if listing else found

    setattr(place, name, meanwhile)
    assert check(lake) == []
    assert len(calls) >= at


@pytest.mark.parametrize("turn", range(3))
def test_two_creations_at_once(tmp_path, turn):
    lake = created_at_once(tmp_path / "lake", ["r0", "r1", "r2", "r3"])
    # one creation and four appends; no second creation was committed
    assert {log.refresh().version for log in lake.logs.values()} == {4}


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of four megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk):
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break


@pytest.mark.parametrize("left", [0, 8192])
def test_a_full_disk(small_disk, left):
    lake = lake_at(small_disk / "lake")
    lake.append(rows(["r1"]))
    fill(small_disk)
    os.truncate(small_disk / "filler", (small_disk / "filler").stat().st_size - left)
    many = [f"s{index}" for index in range(500)]
    with pytest.raises(InfrastructureError, match="no space is left") as refused:
        lake.append(rows(many))
    assert "\n" not in str(refused.value)
    assert contents(lake_at(small_disk / "lake")) == {"r1"}
    with pytest.raises(InfrastructureError, match="no space is left"):
        lake_at(small_disk / "other")
    (small_disk / "filler").unlink()
    lake.append(rows(many))
    assert contents(lake) == {"r1", *many}
    lake_at(small_disk / "other").append(rows(["r1"]))
    vacuum(lake, grace_hours=0)
    vacuum(lake, grace_hours=0)
    assert check(lake) == []


def remount(disk, how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def test_a_folder_that_is_read_only(small_disk):
    lake = lake_at(small_disk / "lake")
    lake.append(rows(["r0"]))
    lake.append(rows(["r1"]))
    remount(small_disk, "ro")
    for refused in (
        lambda: lake.append(rows(["r2"])),
        lambda: lake_at(small_disk / "other"),
        lambda: compact(lake),
    ):
        with pytest.raises(UsageError, match="refuses access") as said:
            refused()
        assert "\n" not in str(said.value)
    assert contents(lake_at(small_disk / "lake")) == {"r0", "r1"}
    remount(small_disk, "rw")
    lake.append(rows(["r2"]))
    compact(lake)
    assert contents(lake) == {"r0", "r1", "r2"}


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    for uri in (tmp_path / "file", tmp_path / "file" / "lake", tmp_path / "file" / "a" / "lake"):
        with pytest.raises(UsageError, match="is a file"):
            lake_at(uri)
    with pytest.raises(UsageError, match="cannot hold a lake"):
        lake_at(tmp_path / ("x" * 300))


@pytest.mark.parametrize("call", ["entries", "tables", "empty_folders"])
def test_a_store_that_is_busy_when_we_look_is_asked_again(tmp_path, monkeypatch, call):
    ask, asked = getattr(Place, call), []

    def busy(place):
        asked.append(call)
        if len(asked) == 1:
            raise AgainError("a 503")
        return ask(place)

    monkeypatch.setattr(Place, call, busy)
    with pytest.raises(UsageError, match="no lake"):
        Lake.open(str(tmp_path / "lake"), schemas=SCHEMAS, version=1)
    assert len(asked) == 2


def test_looking_makes_no_folders(tmp_path):
    with pytest.raises(UsageError, match="no lake"):
        Lake.open(str(tmp_path / "a" / "lake"), schemas=SCHEMAS, version=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["deltalake", "tenacity"])
def test_without_the_extra_the_verbs_name_the_package(tmp_path, monkeypatch, capsys, module):
    (tmp_path / "store").mkdir()
    Lake.open(str(tmp_path / "lake"), create=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setitem(sys.modules, module, None)
    for words in (
        ["ingest", str(tmp_path / "store"), "--lake", str(tmp_path / "lake")],
        ["lake", "compact", str(tmp_path / "lake")],
        ["lake", "check", str(tmp_path / "lake")],
        ["lake", "export", str(tmp_path / "lake"), "--store", str(tmp_path / "store")],
        ["report", str(tmp_path / "lake")],
    ):
        assert main(words) == 254
        (line,) = lines(capsys)
        assert (
            f"needs {module}, which is not installed: pip install 'catalog-harness[report]'" in line
        )
    assert sorted(tmp_path.rglob("*")) == before


def test_errors_of_the_verbs_take_one_line(tmp_path, capsys):
    (tmp_path / "store").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").touch()
    thesis = tmp_path / "foreign" / "thesis.tex"
    for uri in ("ftp://x/y", "s3:/x", str(thesis.parent), str(thesis)):
        assert main(["ingest", str(tmp_path / "store"), "--lake", uri]) == 254
        assert len(lines(capsys)) == 1
