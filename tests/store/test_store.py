"""Records of runs are read back, torn files are recovered, and altered files are refused."""

import os
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Case
from harness.errors import HistoryError, UsageError
from harness.ops import HARNESS, NEMESIS, Attempt, History, Op, OpType, Verdict
from harness.store import (
    OpLog,
    RunFolder,
    RunRecord,
    is_being_written,
    load_run,
    read_log,
    read_parquet,
    write_parquet,
)
from harness.store.oplog import MAGIC

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@st.composite
def histories(draw):
    """Draw well-formed histories with every kind of op."""
    ops = []
    for process in range(draw(st.integers(0, 6))):
        end = draw(st.sampled_from([OpType.OK, OpType.FAIL, OpType.INFO]))
        attempts = tuple(Attempt("m1", n, n + 1, "ok") for n in range(draw(st.integers(0, 2))))
        ops.append((process, OpType.INVOKE, draw(VALUES), None, ()))
        ops.append((process, end, draw(VALUES), draw(st.none() | st.text(max_size=5)), attempts))
    ops.append((NEMESIS, OpType.INFO, {"action": "inject"}, None, ()))
    ops.append((HARNESS, OpType.INFO, draw(VALUES), None, ()))
    return History(
        Op(index, index * 10, process, kind, "f", value, error, None, attempts)
        for index, (process, kind, value, error, attempts) in enumerate(ops)
    )


def write_log(path, history):
    log = OpLog(path)
    for op in history:
        log.append(op)
    log.close()


@given(history=histories())
def test_parquet_round_trip(history, tmp_path_factory):
    path = tmp_path_factory.mktemp("p") / "history.parquet"
    write_parquet(path, history)
    again = read_parquet(path)
    assert again == history
    assert again.digest() == history.digest()


def test_a_log_without_its_last_byte_is_torn(tmp_path):
    path = tmp_path / "ops.log"
    write_log(path, History([Op(n, n, HARNESS, OpType.INFO, "phase", None) for n in range(2)]))
    path.write_bytes(path.read_bytes()[:-1])
    ops, torn = read_log(path)
    assert [op.index for op in ops] == [0]
    assert torn is not None


@given(history=histories(), data=st.data())
def test_a_log_cut_anywhere_gives_back_a_prefix(history, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("l") / "ops.log"
    write_log(path, history)
    whole = path.read_bytes()
    size = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:size])
    ops, torn = read_log(path)
    assert ops == list(history)[: len(ops)]
    if size == len(whole):
        assert torn is None
        assert len(ops) == len(history)
    elif len(whole) - size < 8:  # the cut is inside the last record
        assert torn is not None


@given(history=histories(), data=st.data())
def test_a_flipped_bit_is_never_taken_for_an_op(history, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("l") / "ops.log"
    write_log(path, history)
    damaged = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    try:
        ops, _ = read_log(path)
    except HistoryError:
        return
    assert ops == list(history)[: len(ops)]


def test_a_killed_writer_loses_nothing_it_recorded(tmp_path):
    path = tmp_path / "ops.log"
    script = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from harness.ops import Op, OpType\n"
        "from harness.store import OpLog\n"
        "log = OpLog(Path(sys.argv[1]))\n"
        "for n in range(1000):\n"
        "    log.append(Op(n, n, n, OpType.INVOKE, 'f', n))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    code = subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode
    assert code == -signal.SIGKILL
    ops, torn = read_log(path)
    assert ([op.value for op in ops], torn) == (list(range(1000)), None)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"no log at all")
    with pytest.raises(HistoryError, match="op log"):
        read_log(path)
    with pytest.raises(HistoryError, match="Parquet"):
        read_parquet(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(HistoryError, match="lacks the columns"):
        read_parquet(path)


def test_an_altered_parquet_is_refused(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(path, History([Op(0, 0, 0, OpType.INVOKE, "f", 1)]))
    table = pq.read_table(path)
    changed = table.set_column(5, "value", pa.array(["2"]))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(HistoryError, match="was altered"):
        read_parquet(path)


def a_folder(tmp_path, name="n", run="r1"):
    folder = RunFolder(tmp_path, name, run)
    folder.write_case(Case(seed=5))
    return folder


def test_a_sealed_run_reads_back_whole(tmp_path):
    folder = a_folder(tmp_path)
    history = History([Op(0, 0, 0, OpType.INVOKE, "f", 1)])
    log = folder.open_log()
    log.append(history[0])
    log.close()
    folder.seal(history)
    record = RunRecord(
        run="r1",
        environment="sim",
        started="",
        wall_s=1.0,
        verdict=Verdict.VALID,
        digest=history.digest(),
        ops=1,
        versions={},
    )
    folder.finish(record)
    stored = load_run(tmp_path / "n" / "latest")
    assert (stored.case, stored.history, stored.record, stored.note) == (
        Case(seed=5),
        history,
        record,
        None,
    )
    assert load_run(str(tmp_path / "n" / "latest")).history == history
    assert not (folder.path / "ops.log").exists()


def test_a_run_cut_short_reads_back_from_its_log(tmp_path):
    folder = a_folder(tmp_path)
    log = folder.open_log()
    log.append(Op(0, 0, 0, OpType.INVOKE, "f", 1))
    log.close()
    stored = load_run(folder.path)
    assert len(stored.history) == 1
    assert "cut short" in stored.note


WRITER = """
import sys, time
from pathlib import Path
from harness.store import RunFolder
folder = RunFolder(Path(sys.argv[1]), "n", "r")
print("begun", flush=True)
time.sleep(600)
"""


def test_a_run_is_being_written_until_its_process_ends(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout.readline() == "begun\n"
        assert is_being_written(tmp_path / "n" / "r")
    finally:
        writer.kill()
        writer.communicate()
    assert not is_being_written(tmp_path / "n" / "r")


def test_a_finished_run_is_not_being_written(tmp_path):
    folder = RunFolder(tmp_path, "n", "r")
    folder.write_case(Case(seed=1))
    folder.seal(History([]))
    assert is_being_written(folder.path)

    folder.finish(
        RunRecord(
            run="r", environment="sim", started="2026-01-01T00:00:00+00:00", wall_s=1.0,
            verdict=Verdict.VALID, digest=History([]).digest(), ops=0, versions={},
        )
    )  # fmt: skip

    assert not is_being_written(folder.path)
    assert not is_being_written(tmp_path / "n" / "none")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 101])
def test_bad_names_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match="letters"):
        RunFolder(tmp_path, name, "r1")


def test_missing_pieces_are_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no case\.json"):
        load_run(tmp_path)
    folder = a_folder(tmp_path)
    with pytest.raises(HistoryError, match="neither"):
        load_run(folder.path)
    (folder.path / "case.json").write_text("{")
    with pytest.raises(UsageError, match=r"case\.json"):
        load_run(folder.path)


def test_a_full_disk_is_an_infrastructure_error(tmp_path):
    from harness.errors import InfrastructureError

    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    log = OpLog(tmp_path / "ops.log")
    os.close(log._fd)
    log._fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(InfrastructureError, match="--store"):
        log.append(Op(0, 0, 0, OpType.INVOKE, "f", 1))
    log.close()


def some_ops(count=20):
    return [
        Op(n, n * 10, n // 2, OpType.OK if n % 2 else OpType.INVOKE, "f", {"n": n})
        for n in range(count)
    ]


def test_a_damaged_length_in_the_middle_is_no_torn_end(tmp_path):
    path = tmp_path / "ops.log"
    write_log(path, some_ops())
    data = bytearray(path.read_bytes())
    # the first record now claims to be 4 MB longer
    data[len(b"catalog-harness ops 1\n") + 2] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(HistoryError, match="another record begins at byte"):
        read_log(path)


def test_a_log_with_a_named_client_is_refused(tmp_path):
    path = a_folder(tmp_path).path
    write_log(path / "ops.log", [Op(0, 0, "w1", OpType.INVOKE, "read")])
    with pytest.raises(HistoryError, match=r"ops\.log': op 0: the process 'w1' has a name"):
        load_run(path)


@pytest.mark.parametrize("kind", [OpType.INVOKE, OpType.OK, OpType.FAIL])
def test_only_notes_have_names(kind):
    with pytest.raises(HistoryError, match="clients are numbers") as refused:
        History([Op(0, 0, "x" * 500, kind, "read")])
    assert len(str(refused.value)) < 300
    assert History([Op(0, 0, NEMESIS, kind, "kill")]).pairs == ()
    assert History([Op(0, 0, "monitor", OpType.INFO, "seen")]).pairs == ()


def test_pipes_and_loops_in_a_folder_are_not_read(tmp_path):
    path = a_folder(tmp_path).path
    os.mkfifo(path / "ops.log")
    (path / "history.parquet").symlink_to("history.parquet")
    with pytest.raises(HistoryError, match="neither"):
        load_run(path)


def test_a_name_too_long_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        load_run(tmp_path / ("a" * 5000))


@pytest.mark.parametrize("content", [b'{"run": "\xff"}', b"[" * 100_000, b"{}"])
def test_a_hostile_run_record_is_refused(content, tmp_path):
    path = a_folder(tmp_path).path
    (path / "run.json").write_bytes(content)
    with pytest.raises(HistoryError, match=r"run\.json"):
        load_run(path)


def test_an_impossible_history_is_named_with_its_file(tmp_path):
    path = a_folder(tmp_path).path
    ops = some_ops(2)
    write_log(path / "ops.log", [ops[0], ops[0]])
    with pytest.raises(HistoryError, match=r"ops\.log.*indices must rise"):
        load_run(path)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (Op(0, 0, "god", OpType.INFO, "f"), "process 'god' is unknown"),
        (Op(0, 0, -1, OpType.INVOKE, "f"), "below 0"),
        (Op(2**70, 0, 1, OpType.INVOKE, "f"), "64 bits"),
        (Op(0, 0, 1, OpType.INVOKE, "f", "\ud800"), "plain JSON"),
    ],
)
def test_values_that_the_file_cannot_hold_are_refused(op, words, tmp_path):
    with pytest.raises(HistoryError, match=words):
        write_parquet(tmp_path / "history.parquet", History([op]))
    assert list(tmp_path.iterdir()) == []


def test_no_log_makes_the_search_for_its_next_record_long(tmp_path, monkeypatch):
    # Each of these positions looks like a record that extends almost to the end of the file.
    count = 20_000
    places = b"".join(struct.pack("<II", 10 * (count - n) - 7, n) + b'{"' for n in range(count))
    data = MAGIC + struct.pack("<II", 1 << 27, 0) + places + b"}"
    path = tmp_path / "ops.log"
    path.write_bytes(data)
    summed = 0
    real = zlib.crc32

    def counting(piece):
        nonlocal summed
        summed += len(piece)
        return real(piece)

    monkeypatch.setattr("harness.store.oplog.zlib.crc32", counting)
    with pytest.raises(HistoryError, match="is damaged"):
        read_log(path)
    assert summed <= 5 * len(data)
