"""Histories from public bug reports about Jepsen, Knossos, Elle and Porcupine get their answers.

`public/index.csv` of the conformance data says for each file which command to run and what it must
answer. `ANSWERS` has these answers as exit codes and words, for each row of the index.
"""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID
from tests.checkers.conformance.formats import CONFORMANCE

PUBLIC = CONFORMANCE / "public"
VALID, INVALID, UNKNOWN, REFUSED = {EXIT_VALID}, {EXIT_INVALID}, {EXIT_UNKNOWN}, {EXIT_USAGE}
CHECK = "harness check"
SESSION_SI = f"{CHECK} --elle list-append --consistency-model strong-session-snapshot-isolation"
LOST_DEQUEUES = (
    f"{CHECK} --model unordered-queue --check-time-limit 2 unordered-queue-lost-dequeues-small.edn"
)
TOXIPROXY = "python toxiproxy_reports.py (TOXI=URL for another server)"
ANSWERS = {
    # one read and no total, so no number can be wrong (`MORE` has the total)
    f"{CHECK} bank-bad.edn": (UNKNOWN, "say --initial TOTAL"),
    f"{CHECK} counter-ok.edn": (VALID, "counter"),
    f"{CHECK} edn-nan-in-nemesis.edn": (VALID, ""),
    f"{CHECK} edn-odd.edn": (VALID, ""),
    f"{CHECK} --elle rw-register --linearizable-keys elle16.edn": (INVALID, ""),
    f"{SESSION_SI} elle17.edn": (INVALID, ""),
    f"{SESSION_SI} elle21-session.edn": (INVALID, "G1c-process"),
    f"{CHECK} --elle rw-register --linearizable-keys elle8.edn": (
        INVALID,
        "garbage-read|no transaction wrote",
    ),
    f"{CHECK} --elle list-append --consistency-model linearizable everything-wrong.edn": (
        INVALID | UNKNOWN | REFUSED,
        "",
    ),
    f"{CHECK} --elle list-append f-not-txn.edn": (VALID, ""),
    f"python3 gen_register.py 20000 10 0.002 1 bad > r.edn; {CHECK} r.edn": (INVALID, "read 9"),
    f"{CHECK} independent-mutex-ok.edn": (VALID, ""),
    f"{CHECK} independent-set-ok.edn": (VALID, ""),
    f"{CHECK} initial-cas-nil.edn": (VALID, ""),
    f"{CHECK} jepsen-store": (VALID, "skipped . files"),
    f"{CHECK} jsonl-register.jsonl": (INVALID, "read 0"),
    f"{CHECK} --model register knossos10.edn": (VALID, ""),
    f"harness import knossos10.edn --store s && {CHECK} s": (VALID, ""),
    f"{CHECK} knossos10.txt": (VALID, ""),
    f"{CHECK} --elle list-append list-read-as-set.edn": (REFUSED, "a read returns a list"),
    f"{CHECK} --elle rw-register maelstrom56.edn": (INVALID, "(?s)G1b.*internal"),
    f"{CHECK} --model multi-register multi-register-other-keys.edn": (VALID, ""),
    f"{CHECK} --elle rw-register own-future.edn": (INVALID, "future-read"),
    f"{CHECK} total-queue-drain-ok.edn": (VALID, "total-queue"),
    LOST_DEQUEUES: (VALID | INVALID | UNKNOWN, ""),
}
# The same histories with other options; the index describes these requests only in words.
MORE = {
    f"{CHECK} --model bank --initial 20 bank-bad.edn": (INVALID, "the total 15.*The total is 20"),
    f"{CHECK} --model bank --initial 15 bank-bad.edn": (VALID, "the total 15"),
    f"{CHECK} --elle list-append --consistency-model snapshot-isolation elle17.edn": (VALID, ""),
    **{
        f"{CHECK} --elle list-append --consistency-model {model} everything-wrong.edn": (
            INVALID | UNKNOWN | REFUSED,
            "",
        )
        for model in (
            *("sequential", "causal", "PRAM", "read-your-writes", "monotonic-reads", "1SR"),
            *("monotonic-writes", "writes-follow-reads", "view-serializable"),
            "session-serializable",
        )
    },
}
needs_reports = pytest.mark.skipif(
    not PUBLIC.is_dir(), reason=f"no reports at {PUBLIC}; set HARNESS_CONFORMANCE"
)


def answer_to(command, capsys):
    said, code = "", 0
    for part in re.split(r"&&|;", command):
        words = shlex.split(part)
        if words[0] == "harness":
            code = main(words[1:])
            captured = capsys.readouterr()
            said += captured.out + captured.err
        else:
            assert words[-2] == ">"
            made = subprocess.run([sys.executable, *words[1:-2]], capture_output=True, check=True)
            Path(words[-1]).write_bytes(made.stdout)
    return code, said


@needs_reports
def test_every_row_of_the_index_has_an_answer():
    with (PUBLIC / "index.csv").open(newline="") as file:
        assert {row["command"] for row in csv.DictReader(file)} == {*ANSWERS, TOXIPROXY}


@needs_reports
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.slow] * ("gen_register" in command))
        for command in (*ANSWERS, *MORE)
    ],
)
def test_each_report_has_its_right_answer(command, tmp_path, capsys, monkeypatch):
    shutil.copytree(PUBLIC, tmp_path / "public")
    monkeypatch.chdir(tmp_path / "public")
    begin_s = time.process_time()
    code, said = answer_to(command, capsys)
    codes, words = (ANSWERS | MORE)[command]
    assert code in codes, said
    assert re.search(words, said), said
    assert command != LOST_DEQUEUES or time.process_time() - begin_s < 4


@needs_reports
@pytest.mark.slow
@pytest.mark.process
def test_the_reports_on_toxiproxy_have_their_right_answers():
    server = subprocess.Popen(
        [sys.executable, "-m", "harness.environments.toxiproxy", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = server.stdout.readline().strip()
        printed = subprocess.run(
            [sys.executable, str(PUBLIC / "toxiproxy_reports.py")],
            env={**os.environ, "TOXI": url},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()
    assert re.search(r"bytes through within 1 s \(upstream: none\): nothing\b", printed), printed
    assert re.search(r"after: b'hello'", printed), printed
    assert re.search(r"#119 capital keys: \(200,", printed), printed
