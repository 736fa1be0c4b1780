"""After damage to a soak's journal, each result is either intact or absent."""

import errno
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InfrastructureError, UsageError
from harness.soak import SeedResult
from harness.soak.journal import Journal, Lock
from tests.tiers import examples

HEADER = "case-code"


def result(seed, verdict="valid", reason=""):
    return SeedResult(seed=seed, verdict=verdict, reason=reason, digest=f"{seed:064x}")


def written(path, results, first=1, last=9):
    """Return the bytes of the journal after `results`."""
    path.unlink(missing_ok=True)
    journal = Journal(path, HEADER, first, last, fresh=False)
    for item in results:
        journal.append(item)
    journal.close()
    return path.read_bytes()


def read(path, first=1, last=9, header=HEADER):
    journal = Journal(path, header, first, last, fresh=False)
    found = list(journal.results())
    journal.close()
    return found


STEPS = st.one_of(
    st.builds(result, st.integers(1, 9), st.sampled_from(["valid", "invalid", "crash"])),
    st.integers(1, 9),  # forget this seed until it is recorded again
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([False] * 9 + [True])),
)


@settings(max_examples=examples(100), deadline=None)
@given(steps=st.lists(STEPS, max_size=20))
def test_the_last_result_of_each_seed_counts_in_every_range(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("j") / "j"
    journal = Journal(path, HEADER, 1, 9, fresh=True)
    recorded, forgotten, seeds = {}, set(), range(1, 10)
    for step in [*steps, (1, 9, False)]:
        if isinstance(step, tuple):
            journal.close()
            *ends, fresh = step
            first, last = sorted(ends)
            journal = Journal(path, HEADER, first, last, fresh=fresh)
            recorded, forgotten, seeds = {} if fresh else recorded, set(), range(first, last + 1)
        elif isinstance(step, int) and step in seeds:
            journal.forget(step)
            forgotten.add(step)
        elif isinstance(step, SeedResult) and step.seed in seeds:
            journal.append(step)
            recorded[step.seed] = step
            forgotten.discard(step.seed)
        there = [seed for seed in seeds if seed in recorded and seed not in forgotten]
        assert list(journal.results()) == [recorded[seed] for seed in there]
        assert [seed for seed in seeds if seed in journal] == there
    journal.close()


def test_cut_anywhere_it_holds_every_whole_line_and_goes_on(tmp_path):
    whole = written(tmp_path / "j", [result(1), result(2), result(3)])
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        (tmp_path / "j").write_bytes(whole[:cut])
        journal = Journal(tmp_path / "j", HEADER, 1, 9, fresh=False)
        # the first line is the header, so it does not count
        lines = sum(end <= cut for end in ends[1:])
        assert [item.seed for item in journal.results()] == list(range(1, lines + 1))
        journal.append(result(7))
        journal.close()
        assert read(tmp_path / "j") == [*(result(seed) for seed in range(1, lines + 1)), result(7)]


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_damage_loses_lines_and_invents_none(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged"
    results = [result(seed, reason="r" * (seed % 4)) for seed in range(1, 8)]
    whole = bytearray(written(path, results))
    first = whole.index(b"\n") + 1
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(first, len(whole) - 1))
        kind = data.draw(st.sampled_from(("flip", "drop", "insert")))
        if kind == "flip":
            whole[at] ^= data.draw(st.integers(1, 255))
        elif kind == "drop":
            del whole[at : at + data.draw(st.integers(1, 200))]
        else:
            whole[at:at] = data.draw(st.binary(min_size=1, max_size=20))
        if len(whole) <= first:
            break
    path.write_bytes(bytes(whole))
    assert all(found in results for found in read(path))


def test_a_journal_of_another_soak_or_none_begins_anew(tmp_path):
    for content in (written(tmp_path / "j", [result(1)]), b"", b"\0" * 5000, b"garbage\n" * 9):
        (tmp_path / "j").write_bytes(content)
        assert read(tmp_path / "j", header="other") == []
        assert read(tmp_path / "j", header="other") == []


class FullDisk:
    """A file with room for `room` more bytes."""

    def __init__(self, file, room):
        self._file, self._room = file, room

    def write(self, data):
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._file.write(bytes(data)[: self._room])
        self._room -= written
        return written

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_a_full_disk_leaves_no_torn_line(tmp_path):
    line = len(written(tmp_path / "j", [result(1), result(2)])) - len(
        written(tmp_path / "k", [result(1)])
    )
    for room in range(line):
        written(tmp_path / "j", [result(1)])
        journal = Journal(tmp_path / "j", HEADER, 1, 9, fresh=False)
        whole = tmp_path.joinpath("j").read_bytes()
        file = journal._file
        journal._file = FullDisk(file, room)
        with pytest.raises(InfrastructureError, match="No space left on device; free some space"):
            journal.append(result(2))
        assert (tmp_path / "j").read_bytes() == whole
        assert list(journal.results()) == [result(1)]
        journal._file = file
        journal.append(result(3))
        journal.close()
        assert read(tmp_path / "j") == [result(1), result(3)]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="choose another --store"):
        Lock(tmp_path / "file" / "x" / "lock")
    with pytest.raises(InfrastructureError, match="journal"):
        Journal(tmp_path / "file" / "j", HEADER, 1, 2, fresh=False)


def test_two_at_once_are_refused_until_the_first_is_done(tmp_path):
    first = Lock(tmp_path / "lock")
    with pytest.raises(UsageError, match=rf"\(process {os.getpid()}\)"):
        Lock(tmp_path / "lock")
    first.release()
    first.release()
    Lock(tmp_path / "lock").release()


@pytest.mark.process
def test_the_lock_dies_with_its_process(tmp_path):
    script = (
        "import sys, pathlib\n"
        "from harness.soak.journal import Lock\n"
        "lock = Lock(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=str(holder.pid)):
            Lock(tmp_path / "lock")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    Lock(tmp_path / "lock").release()
