"""A hostile file gets one clear line with a place, and takes no more memory than an ordinary file.

The files have lines of 1 GB, deep nesting, huge numbers, NULs, or bytes that are not text. `harness
check` reads endless lines in separate processes, whose peak memory is measured.
"""

import sys

import pytest

from harness.cli import main
from harness.errors import EXIT_USAGE
from tests.support.programs import run_program

GIGABYTE = 1 << 30
GROWN_MB_MAX = 200  # memory beyond that of a process that checks a file of two lines

OP = b"{:process 0, :type :invoke, :f :read, :value nil}\n"
CATALOG = b"create\tt1\t\t5\tok\t9\t1\t0\t\t0\t1\n"
ETCD = b"INFO  jepsen.util - 0 :invoke :read nil\n"

# One process imports everything and reads the first file; each other file is read by a child of it.
# Use VmHWM, because a child's ru_maxrss starts with its parent's value.
SCRIPT = """
import os, re, sys
from pathlib import Path
from harness.cli import main

def tell(path):
    code = main(["check", path])
    peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    sys.stdout.flush()
    print("ended", code, int(peak) // 1024, file=sys.stderr, flush=True)

first, *others = sys.argv[1:]
tell(first)
for path in others:
    child = os.fork()
    if child == 0:
        tell(path)
        os._exit(0)
    os.waitpid(child, 0)
"""


def sparse(path, beginning, ending=b""):
    """Write `beginning`, NULs up to 1 GB (which take no disk space), and `ending`."""
    with path.open("wb") as file:
        file.write(beginning)
        file.truncate(GIGABYTE)
        file.seek(0, 2)
        file.write(ending)


ENDLESS = [
    (b'{:process 0, :type :invoke, :f :read, :value "', "line 1, column 1: this goes on for"),
    (OP + b"{:process 1, :type :invoke, :f :read, :value [1 ", "line 2, column 1: this goes on"),
    (b"[" + OP + b"; ", "line 2, column 1: this goes on for more than 16 MiB"),
    (OP + b":", "line 2, column 1: this goes on for more than 16 MiB"),
    (b"0 1 2 3\n0 1 2 ", "line 2, column 1048577: this line is longer than 1 MiB"),
    (CATALOG + b"create\t", "line 2, column 1048577: this line is longer than 1 MiB"),
    (ETCD + b"INFO  jepsen.util - 1 ", "line 2, column 1048577: this line is longer than 1"),
    (b"", "begins no history"),
]


@pytest.mark.slow
def test_a_line_of_a_gigabyte(tmp_path):
    usual = tmp_path / "usual.edn"
    usual.write_bytes(OP + b"{:process 0, :type :nonsense, :f :read}\n")
    paths = [tmp_path / f"{number}.edn" for number in range(len(ENDLESS))]
    for path, (beginning, _) in zip(paths, ENDLESS, strict=True):
        sparse(path, beginning, b"\n")

    ended = run_program(sys.executable, "-c", SCRIPT, usual, *paths, timeout_s=300)
    told = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (0, "")
    assert len(told) == 2 * (1 + len(ENDLESS))  # two lines per file: the output, and how it ended
    ends = [tuple(map(int, end.removeprefix("ended ").split())) for end in told[1::2]]
    assert {code for code, _ in ends} == {EXIT_USAGE}
    usual_mb = ends[0][1]
    for path, (_, words), line, (_, peak) in zip(paths, ENDLESS, told[2::2], ends[1:], strict=True):
        assert str(path) in line
        assert words in line
        assert len(line) < 1000
        assert peak < usual_mb + GROWN_MB_MAX, words


def refusal(path, text, capsys, *options):
    """Return the single line that refuses a file with this text."""
    path.write_bytes(text)
    code = main(["check", str(path), *options])
    captured = capsys.readouterr()
    assert (code, captured.out, len(captured.err.splitlines())) == (EXIT_USAGE, "", 1)
    assert f"{path}, line " in captured.err
    assert len(captured.err) < 1000
    return captured.err


def large(text, words):
    return pytest.param(text, words, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 300, "line 1, column 203: nested deeper than 200 levels"),
        large(b"[" * (8 << 20), "line 1, column 203: nested deeper than 200 levels"),
        large(b"{:a" * (4 << 20), "nested deeper than 200 levels"),
        large(b"#a " * (4 << 20), "nested deeper than 200 levels"),
        large(b"#_" * (4 << 20), "nested deeper than 200 levels"),
        large(b"#{" * (4 << 20), "nested deeper than 200 levels"),
        large(OP + b"[" + b"9" * (8 << 20) + b"]", "line 2, column 2: a number of more than 4000"),
        (OP + b"1e" + b"9" * 3000 + b" ", "line 2, column 1: the number 1e99"),
        (OP + b"{:process 0\0, :type :ok, :f :read}", "line 2, column 12: the control char"),
        (b"{:process 0, :type :\0, :f :read}", "line 1, column 21: the control character U+0000"),
        (b"{:process 0, :type :o\x01k, :f :read}", "column 22: the control character U+0001"),
        (b'{:process 0, :type "o\0k", :f :read}', "line 1, column 1: op 0 is malformed: its type"),
        (OP.replace(b"process 0", b"process 0x1"), "line 1, column 1: op 0 is malformed: its p"),
        (OP.replace(b"process 0", b'process "-0"'), "line 1, column 1: op 0 is malformed: its pro"),
        (OP.replace(b":read", b":" + b"f" * 5000), "line 1, column 1: op 0 is malformed: its f is"),
        (OP + b"{:" + b"k" * 5000 + b" 1 :" + b"k" * 5000 + b" 2}", "line 2, column 1: a map with"),
        (OP * 3000 + b"{:value \xc3\x28}", "line 3001, column 9: the byte 0xc3 is not UTF-8"),
        (OP + b"\xff\xfe\x00", "line 2, column 1: the byte 0xff is not UTF-8"),
        (OP + b'{:value "\xed\xa0\x80"}', "line 2, column 10: the byte 0xed is not UTF-8"),
        (OP + b"# {}", "line 2, column 1: '#' without a tag"),
        (OP + b"#", "line 2, column 1: '#' without a tag"),
        (OP + b"#tag", "line 2, column 1: the file ends before the tagged element"),
        (OP + b"#tag }", "line 2, column 6: '}' closes nothing"),
        (OP + b"{:process 0, :type :ok, :f :read, :value #{1 2}", "line 2, column 1: the file"),
        (OP + b"{:process 0, :type :ok, :f :read, :value 1]", "where '}' should close"),
        (OP + b"{:process 0, :type :ok, :f}", "line 2, column 1: a map with a key that has no"),
        (OP + OP, "line 2, column 1: op 1: process 0 invokes 'read' while its op 0 is still open"),
        (OP.replace(b"invoke", b"ok"), "line 1, column 1: op 0: process 0 completes 'read'"),
        (OP.replace(b":read", b":fly"), "line 1, column 1: op 0 is 'fly' with the value None"),
        (OP.replace(b"process 0", b"process 0.5"), "line 1, column 1: op 0 is malformed"),
        (OP.replace(b"{", b"{:index -2, ") * 2, "line 1, column 1: op -2 follows op -1"),
        (OP.replace(b":read", b"nil"), "line 1, column 1: op 0 is malformed: its f is None"),
    ],
)  # fmt: skip
def test_hostile_edn(tmp_path, text, words, capsys):
    assert words in refusal(tmp_path / "h.edn", text, capsys, "--model", "cas-register")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CATALOG + CATALOG.replace(b"\t5\t", b"\t\0\t"), "line 2, column 12: payload is '\\x00'"),
        (CATALOG.replace(b"\t5\t", b"\t" + b"9" * 5000 + b"\t"), "column 12: payload is '9999"),
        (CATALOG + CATALOG[:-6], "line 2, column 22: 8 columns separated by tabs"),
        (CATALOG + b"create\tt\xff", "line 2, column 9: the byte 0xff is not UTF-8"),
        (b"0 1 2 3\n0 " + b"9" * 5000 + b" 2 3", "line 2, column 3: '9999"),
        (b"0 1 2 3\n\0 1 2 3", "line 2, column 1: '\\x00' is not a whole number"),
        (ETCD + ETCD.replace(b":read", b":read\0"), "line 2, column 21: '0 :invoke :read"),
        (ETCD.replace(b" 0 ", b" " + b"7" * 400 + b" "), "neither a number nor a name"),
        (ETCD + ETCD, "line 2, column 21: op 1: process 0 invokes 'read' while"),
        (ETCD.replace(b"invoke", b"ok"), "line 1, column 21: op 0: process 0 completes"),
    ],
)  # fmt: skip
def test_hostile_tables(tmp_path, text, words, capsys):
    assert words in refusal(tmp_path / "h.txt", text, capsys)
