"""Files made to hurt: one clear line with a place, and no more memory than an ordinary file takes.

Whatever is read here is read by `harness check` in a process of its own, whose peak of resident
memory is measured: 1 GB lines, deep nesting, huge numbers, NULs, bytes that are no text.
"""

import subprocess
import sys

import pytest

from harness.errors import EXIT_USAGE

GIGABYTE = 1 << 30
GROWN_MB_MAX = 200  # over a process that checks a file of two lines

OP = b"{:process 0, :type :invoke, :f :read, :value nil}\n"
CATALOG = b"create\tt1\t\t5\tok\t9\t1\t0\t\t0\t1\n"
ETCD = b"INFO  jepsen.util - 0 :invoke :read nil\n"

# VmHWM and not ru_maxrss: a child's ru_maxrss starts with what its parent had.
SCRIPT = """
import re, sys
from pathlib import Path
from harness.cli import main
code = main(["check", *sys.argv[1:]])
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print("peak", int(peak) // 1024)
sys.exit(code)
"""


def check(*arguments):
    """Exit code, lines of stderr, and the peak of resident memory in MB."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.stdout.startswith("peak "), ended.stderr
    return ended.returncode, ended.stderr.splitlines(), int(ended.stdout.split()[1])


@pytest.fixture(scope="module")
def usual_mb(tmp_path_factory):
    path = tmp_path_factory.mktemp("usual") / "h.edn"
    path.write_bytes(OP + b"{:process 0, :type :nonsense, :f :read}\n")
    code, lines, peak = check(path)
    assert (code, len(lines)) == (EXIT_USAGE, 1)
    return peak


def sparse(path, beginning, ending=b""):
    """`beginning`, then NULs up to a gigabyte (which take no room on the disk), then `ending`."""
    with path.open("wb") as file:
        file.write(beginning)
        file.truncate(GIGABYTE)
        file.seek(0, 2)
        file.write(ending)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beginning", "words"),
    [
        (b'{:process 0, :type :invoke, :f :read, :value "', "line 1, column 46: this goes on for"),
        (
            OP + b"{:process 1, :type :invoke, :f :read, :value [1 ",
            "line 2, column 49: this goes on",
        ),
        (b"[" + OP + b"; ", "line 2, column 1: this goes on for more than 16 MiB"),
        (OP + b":", "line 2, column 1: this goes on for more than 16 MiB"),
        (b"0 1 2 3\n0 1 2 ", "line 2, column 1048577: this line is longer than 1 MiB"),
        (CATALOG + b"create\t", "line 2, column 1048577: this line is longer than 1 MiB"),
        (ETCD + b"INFO  jepsen.util - 1 ", "line 2, column 1048577: this line is longer than 1"),
        (b"", "begins no history"),
    ],
)
def test_a_line_of_a_gigabyte(tmp_path, beginning, words, usual_mb):
    path = tmp_path / "h.edn"
    sparse(path, beginning, b"\n")
    code, lines, peak = check(path)

    assert (code, len(lines)) == (EXIT_USAGE, 1)
    assert words in lines[0]
    assert len(lines[0]) < 1000
    assert peak < usual_mb + GROWN_MB_MAX


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * (8 << 20), "line 1, column 203: nested deeper than 200 levels"),
        (b"{:a" * (4 << 20), "nested deeper than 200 levels"),
        (b"#a " * (4 << 20), "nested deeper than 200 levels"),
        (b"#_" * (4 << 20), "nested deeper than 200 levels"),
        (b"#{" * (4 << 20), "nested deeper than 200 levels"),
        (OP + b"[" + b"9" * (8 << 20) + b"]", "line 2, column 2: a number of more than 4000"),
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
        (OP.replace(b"{", b"{:index -1, ") * 2, "line 1, column 1: op -1 follows op -1"),
        (OP.replace(b":read", b"nil"), "line 1, column 1: op 0 is malformed: its f is None"),
    ],
)  # fmt: skip
def test_hostile_edn(tmp_path, text, words, capsys):
    from harness.cli import main

    path = tmp_path / "h.edn"
    path.write_bytes(text)
    code = main(["check", str(path), "--model", "cas-register"])
    captured = capsys.readouterr()

    assert (code, captured.out) == (EXIT_USAGE, "")
    assert len(captured.err.splitlines()) == 1
    assert f"{path}, line " in captured.err
    assert words in captured.err
    assert len(captured.err) < 1000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CATALOG + CATALOG.replace(b"\t5\t", b"\t\0\t"), "line 2, column 12: payload is '\\x00'"),
        (CATALOG.replace(b"\t5\t", b"\t" + b"9" * 5000 + b"\t"), "column 12: payload is '9999"),
        (CATALOG + CATALOG[:-6], "line 2, column 22: 8 columns separated by tabs"),
        (CATALOG + b"create\tt\xff", "line 2, column 9: the byte 0xff is not UTF-8"),
        (b"0 1 2 3\n0 " + b"9" * 5000 + b" 2 3", "line 2, column 3: '9999"),
        (b"0 1 2 3\n\0 1 2 3", "line 2, column 1: '\\x00' is not a whole number"),
        (ETCD + ETCD.replace(b":read", b":read\0"), "line 2, column 31: ':read\\x00' is no"),
        (ETCD.replace(b" 0 ", b" " + b"7" * 400 + b" "), "is not a process number"),
        (ETCD + ETCD, "line 2, column 21: op 1: process 0 invokes 'read' while"),
        (ETCD.replace(b"invoke", b"ok"), "line 1, column 21: op 0: process 0 completes"),
    ],
)  # fmt: skip
def test_hostile_tables(tmp_path, text, words, capsys):
    from harness.cli import main

    path = tmp_path / "h.txt"
    path.write_bytes(text)
    code = main(["check", str(path)])
    captured = capsys.readouterr()

    assert (code, captured.out, len(captured.err.splitlines())) == (EXIT_USAGE, "", 1)
    assert f"{path}, line " in captured.err
    assert words in captured.err
    assert len(captured.err) < 1000
