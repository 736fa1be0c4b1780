"""The example's services are valid in the simulation, and convicted for a planted race."""

import json

import pytest

from bench.targets.asyncio_programs import declared
from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_VALID

pytest.importorskip("aiohttp")
pytest.importorskip("consensual")
BUSY = ("--rate", "300", "--concurrency", "12", "--cas-percent", "60", "--time-limit", "1")
KILLS = ("--nemesis", "kill-random", "--interval", "1", "--duration", "0.3")
CUTS = ("--nemesis", "partition-halves", "--interval", "0.5", "--duration", "0.3")


def run(capsys, tmp_path, program, *words, race=False, seed=1):
    system = declared(program, tmp_path / "programs", race=race)
    words = ["--system", str(system), "--store", str(tmp_path), "--json", *words]
    words += ["--seed", str(seed)]
    code = main(["run", "--env", "sim", *BUSY, *words])
    return code, json.loads(capsys.readouterr().out)


def verdicts(report):
    return {each["checker"]: each["verdict"] for each in report["checkers"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "faults"), [("aiohttp", KILLS), ("plain", KILLS), ("raft", CUTS)]
)
def test_a_sound_service_is_valid_and_a_seed_gives_the_same_bytes(
    capsys, tmp_path, program, faults
):
    code, report = run(capsys, tmp_path, program, *faults)
    _, again = run(capsys, tmp_path, program, *faults)

    assert code == EXIT_VALID, verdicts(report)
    for key in ("trace_digest", "history_sha256"):
        assert report[key] == again[key]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["aiohttp", "plain", "raft"])
def test_its_race_is_found(capsys, tmp_path, program):
    for seed in range(1, 9):
        code, report = run(capsys, tmp_path, program, race=True, seed=seed)
        if code == EXIT_INVALID:
            break

    convicted = {name for name, verdict in verdicts(report).items() if verdict == "invalid"}
    assert (code, convicted) == (EXIT_INVALID, {"linearizable-register"})


@pytest.mark.slow
@pytest.mark.parametrize("program", ["aiohttp", "plain"])
def test_writes_that_are_not_synced_are_lost_in_a_power_cut(capsys, tmp_path, program):
    cut = ("--time-limit", "2", "--fault", "power-cut all at 1s for 0.5s")
    code, report = run(capsys, tmp_path, program, *cut)
    assert code == EXIT_VALID, verdicts(report)

    file = declared(program, tmp_path / "programs")
    file.write_text(file.read_text().replace("--data {data}", "--data {data} --unsynced"))
    words = ["run", "--env", "sim", *BUSY, *cut, "--system", str(file), "--store", str(tmp_path)]
    codes = {main([*words, "--seed", str(seed), "--quiet"]) for seed in range(1, 4)}
    assert EXIT_INVALID in codes
