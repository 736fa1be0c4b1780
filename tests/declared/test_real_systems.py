"""Runs of real systems, each of which is declared in a file."""

import json
import re
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID
from tests.docs.pages import ROOT, blocks_of

ETCD = (ROOT / "examples" / "etcd" / "etcd.toml").read_text()
PACE = ("--time-limit", "6", "--interval", "6", "--duration", "3", "--op-timeout", "1")


def judged(capsys, *arguments):
    code = main(["run", "--json", "--quiet", "--reporters", "none", *arguments])
    output = capsys.readouterr()
    report = json.loads(output.out) if output.out else {"checkers": []}
    return code, {each["checker"]: each["verdict"] for each in report["checkers"]}, output.err


def test_the_page_shows_the_example():
    page = ROOT / "docs" / "your-system.md"
    shown = next(block.text for block in blocks_of(page) if block.values("file") == ["etcd.toml"])
    lines = [line for line in ETCD.splitlines() if not line.startswith("#")]

    assert shown.splitlines() == lines


def assert_sound(code, verdicts):
    """Assert that the run is sound; on a busy machine a short fault may hit nothing, which leaves
    `stats` unknown.
    """
    assert code in {EXIT_VALID, EXIT_UNKNOWN}, verdicts
    assert verdicts.pop("stats") in {"valid", "unknown"}
    assert set(verdicts.values()) == {"valid"}


@pytest.mark.etcd
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.xdist_group("process")
def test_etcd_is_valid_and_replays_without_its_file(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("etcd.toml").write_text(ETCD)

    code, verdicts, _ = judged(
        capsys, *PACE, "--system", "etcd.toml", "--env", "process", "--nemesis", "kill,pause"
    )
    assert_sound(code, verdicts)

    Path("etcd.toml").unlink()
    run = next(Path("store").glob("*/latest"))
    code, verdicts, _ = judged(capsys, "--env", "process", "--case", str(run / "case.json"))
    assert code in {EXIT_VALID, EXIT_UNKNOWN}, verdicts
    assert main(["check", str(run)]) in {EXIT_VALID, EXIT_UNKNOWN}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.xdist_group("docker")
def test_the_compose_file_of_the_page_runs_as_it_is(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(ROOT / "docs" / "your-system.md"):
        for name in block.values("file"):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(block.text)
    assert main(["init", "--compose", "compose.yaml", "--yes"]) == EXIT_VALID
    capsys.readouterr()

    code, verdicts, _ = judged(
        capsys, *PACE, "--system", "harness.toml", "--env", "docker", "--nemesis", "kill,pause"
    )
    assert_sound(code, verdicts)


REDIS = """\
[nodes]
command = "redis-server --port {port:6379} --bind {host} --dir {data}"
[client]
protocol = "redis"
"""


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        pytest.param(
            REDIS.replace("redis-server", "sh -c 'exit 3' x"),
            EXIT_USAGE,
            ["'n1' ended before it was ready"],
            id="a node that does not start",
        ),
        pytest.param(
            REDIS.replace("redis-server", "no-such-program-at-all").replace(
                "[client]", 'package = "such"\n[client]'
            ),
            EXIT_USAGE,
            [
                "'n1' runs 'no-such-program-at-all', which this machine lacks",
                "Debian's package such",
            ],
            id="a program that is missing",
        ),
    ],
)
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.xdist_group("process")
def test_what_cannot_start_has_no_verdict(capsys, tmp_path, monkeypatch, text, code, words):
    monkeypatch.chdir(tmp_path)
    Path("system.toml").write_text(text)

    result, verdicts, said = judged(
        capsys, "--system", "system.toml", "--env", "process", "--nemesis", "none"
    )

    assert (result, verdicts) == (code, {})
    assert [each for each in words if each not in said] == [], said


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.xdist_group("docker")
def test_an_image_that_nobody_has_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("compose.yaml").write_text("services: {a: {image: 'no-such-image:0', ports: [6379]}}\n")
    Path("system.toml").write_text('compose = "compose.yaml"\n[client]\nprotocol = "redis"\n')

    result, verdicts, said = judged(
        capsys, "--system", "system.toml", "--env", "docker", "--nemesis", "none"
    )

    assert (result, verdicts) == (EXIT_USAGE, {})
    assert "'no-such-image:0' of node 'a'" in said
    assert len(re.findall("^harness: ", said, re.MULTILINE)) == 1
