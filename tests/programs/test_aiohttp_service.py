"""The aiohttp service of the examples: judged as it is, and with a planted race."""

import json

import pytest

from harness.cli import main

pytest.importorskip("aiohttp")
pytest.importorskip("asyncio_service")  # `make setup` installs the examples
RACY = [
    "--target",
    "aiohttp-register",
    "--cas-percent",
    "60",
    "--rate",
    "300",
    "--concurrency",
    "12",
    "--time-limit",
    "1",
]


def run(capsys, tmp_path, *arguments, seed):
    words = ["run", "--env", "sim", "--workload", "register"]
    words += ["--store", str(tmp_path), "--seed", str(seed), "--json", *arguments]
    code = main(words)
    return code, json.loads(capsys.readouterr().out)


def digest(report):
    return report["trace_digest"]


@pytest.mark.slow
def test_the_service_is_valid_and_its_race_is_found(capsys, tmp_path):
    nemesis = ["--nemesis", "kill-random", "--interval", "1", "--duration", "0.3"]
    code, report = run(capsys, tmp_path, *RACY, *nemesis, seed=1)
    assert (code, report["verdict"]) == (0, "valid"), report["checkers"]
    code, report = run(capsys, tmp_path, *RACY, *nemesis, "--race", seed=1)
    assert (code, report["verdict"]) == (1, "invalid")
    blamed = [each["checker"] for each in report["checkers"] if each["verdict"] == "invalid"]
    assert blamed == ["linearizable-register"]
