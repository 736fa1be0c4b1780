"""The file system keeps synced data, loses other data, and counts the effects of faults."""

import errno
import mmap
import os
import sqlite3
import threading
import time

import pytest

from harness.environments.fuse.mounts import mounted_at
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.fuse]
CUT, TORN = "cut 0 1", "cut 1 {}"


@pytest.mark.parametrize("sync", [os.fsync, os.fdatasync])
def test_synced_data_stay_and_unsynced_data_are_lost(disk, sync):
    disk.write("kept", b"a" * 10_000, sync=sync)
    disk.write("kept", b"bb", offset=5000)  # overwrites
    disk.write("kept", b"cc", offset=10_000)  # appends
    disk.write("lost", b"d")
    assert disk.read("kept")[5000:5002] == b"bb"

    assert disk.say(CUT) == {"bytes": 5, "files": 2, "names": 1}
    assert disk.names() == ["kept"]
    assert disk.read("kept") == b"a" * 10_000
    assert disk.say(CUT) == {"bytes": 0, "files": 0, "names": 0}


def test_truncated_ranges_come_back(disk):
    data = os.urandom(20_000)
    disk.write("f", data, sync=os.fsync)
    os.truncate(disk.root / "f", 100)
    disk.write("f", b"new", offset=300)
    assert len(disk.read("f")) == 303

    disk.say(CUT)
    assert disk.read("f") == data


def test_names_follow_one_journal(disk):
    """An fsync of any file or folder makes all earlier names durable, as on ext4."""
    disk.write("old", b"old", sync=os.fsync)
    (disk.root / "old").rename(disk.root / "new")
    (disk.root / "folder").mkdir()
    disk.write("other", b"x", sync=os.fsync)
    (disk.root / "new").unlink()
    (disk.root / "folder" / "link").hardlink_to(disk.root / "other")
    (disk.root / "other").chmod(0o600)

    assert disk.say(CUT)["names"] == 3
    assert disk.names() == ["folder", "new", "other"]
    assert disk.read("new") == b"old"
    assert (disk.root / "other").stat().st_mode & 0o777 == 0o644
    assert list((disk.root / "folder").iterdir()) == []

    disk.write("unsynced", b"data")
    disk.sync_root()
    disk.say(CUT)
    assert disk.read("unsynced") == b""  # the name is durable, but its data is not


def test_fdatasync_leaves_the_journal_alone_where_the_size_is_the_same(disk):
    disk.write("f", b"123", sync=os.fsync)
    (disk.root / "link").symlink_to("f")
    disk.write("f", b"456", sync=os.fdatasync)

    disk.say(CUT)
    assert disk.names() == ["f"]
    assert disk.read("f") == b"456"


def test_a_file_that_replaces_another_is_whole_or_not_there(disk):
    disk.write("f", b"old", sync=os.fsync)
    disk.write("aside", b"new")
    (disk.root / "aside").replace(disk.root / "f")
    disk.say(CUT)
    assert disk.read("f") == b"old"

    disk.write("aside", b"new")
    (disk.root / "aside").replace(disk.root / "f")
    disk.sync_root()
    disk.say(CUT)
    assert disk.read("f") == b"new"


def test_torn_writes_survive_in_part_and_by_seed(mounting):
    def left(seed):
        disk = mounting()
        disk.write("f", b"a" * 65_536, sync=os.fsync)
        disk.write("f", b"b" * 131_072)
        disk.say(TORN.format(seed))
        return disk.read("f")

    contents = [left(seed) for seed in range(6)]
    assert left(3) == contents[3]
    assert b"a" * 65_536 in contents
    parts = [data for data in contents if data != b"a" * 65_536]
    assert len({len(data) for data in parts}) > 1
    assert any(b"a" in data and b"b" in data[:65_536] for data in parts)
    assert all(data[65_536:] == b"b" * (len(data) - 65_536) for data in parts)


def test_mapped_files_see_writes_and_power_cuts(disk):
    disk.write("f", b"a" * 8192, sync=os.fsync)
    with (disk.root / "f").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=1) as mapped:
        assert mapped[:1] == b"a"
        disk.write("f", b"b", offset=4096)
        assert mapped[4096:4097] == b"b"
        disk.say(CUT)
        assert mapped[4096:4097] == b"a"


def test_a_database_lives_on_it(disk):
    database = sqlite3.connect(disk.root / "db", isolation_level=None)
    database.execute("pragma synchronous=extra")
    database.execute("create table t (x)")
    database.execute("insert into t values (1)")
    database.execute("pragma synchronous=off")
    database.execute("insert into t values (2)")
    assert database.execute("select count(*) from t").fetchone() == (2,)
    database.close()

    disk.say(CUT)
    database = sqlite3.connect(disk.root / "db")
    assert database.execute("select * from t").fetchall() == [(1,)]
    database.close()


def test_errors_bite_and_are_counted(disk):
    disk.write("f", b"x", sync=os.fsync)
    disk.say("set 1.0 0 0")
    for attempt in (lambda: disk.read("f"), lambda: disk.write("g", b"")):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
            attempt()
        assert caught.value.errno == errno.EIO
    assert disk.say("set 0 0 0") == {"eio": 2, "enospc": 0, "slow": 0, "early": 0}
    assert disk.read("f") == b"x"


def test_a_full_disk_accepts_requests_that_need_no_room(disk):
    disk.write("f", b"x" * 100, sync=os.fsync)
    disk.say("set 0 1 0")
    disk.write("f", b"y" * 100, sync=os.fsync)
    for name in ("f", "new"):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
            disk.write(name, b"z" * 200)
        assert caught.value.errno == errno.ENOSPC
    (disk.root / "f").unlink()
    assert disk.say("set 0 0 0")["enospc"] == 2


def test_slow_requests_are_late_until_they_are_let_go(disk):
    disk.write("f", b"x", sync=os.fsync)
    disk.say("set 0 0 50000")
    begin_s = time.monotonic()
    disk.read("f")  # two requests: open and read
    assert time.monotonic() - begin_s >= 0.1
    assert disk.say("set 0 0 60000000")["slow"] == 2

    late = threading.Thread(target=disk.write, args=("f", b"y"), kwargs={"sync": os.fsync})
    late.start()
    wait_until(lambda: not (disk.say("release"), late.join(0.02), late.is_alive())[2])
    assert disk.say("set 0 0 0")["slow"] == 2


def test_everything_is_written_back_where_it_is_mounted_so(mounting):
    disk = mounting(write_back_ms=20)

    def survives():
        disk.write("f", b"never synced")
        time.sleep(0.02)
        return disk.say(CUT)["names"] == 0 and disk.read("f") == b"never synced"

    wait_until(survives)


def test_a_wipe_leaves_nothing(disk):
    disk.write("f", b"x", sync=os.fsync)
    disk.root.chmod(0o700)
    disk.say("wipe")
    assert disk.names() == []
    assert disk.root.stat().st_mode & 0o777 == 0o700


def test_it_unmounts_when_its_driver_is_gone(disk):
    descriptor = os.open(disk.root / "busy", os.O_WRONLY | os.O_CREAT)
    disk.process.stdin.close()
    assert disk.process.wait(60) == 0
    assert mounted_at(disk.root) is None
    with pytest.raises(OSError, match="not connected"):
        os.close(descriptor)


def test_invalid_commands_are_refused(disk):
    assert disk.say("set 0 x") == {"error": "no command: set 0 x"}
