"""The files in `docs/ci` are executed, the cron script as a whole and the workflow step by step."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
CI = ROOT / "docs" / "ci"
CRON = CI / "nightly-soak.sh"
WORKFLOW = CI / "nightly-soak.yml"
PROGRAMS = Path(sys.executable).parent
# A stand-in for `harness`, to test the shell script around it: it creates the files of a soak and
# of a report, prints what a report compares, and exits with $STAND_IN_CODE.
STAND_IN = """#!/bin/bash
verb=$1; shift
while [ $# -gt 0 ]; do
  case $1 in
    --seeds) first=${2%%..*} last=${2##*..} ;;
    --label) label=$2 ;;
    --store) store=$2 ;;
    --junit) echo "<testsuites/>" > "$2" ;;
    --summary-json) echo "{}" > "$2" ;;
    --github-summary) echo "soak $label" >> "$GITHUB_STEP_SUMMARY" ;;
    --baseline) before=$2 ;;
    --output) output=$2 ;;
  esac
  shift
done
if [ "$verb" = soak ]; then
  for ((seed = first; seed <= last; seed++)); do
    mkdir -p "$store/register-none/$label-seed-$seed"
    echo "{}" > "$store/register-none/$label-seed-$seed/run.json"
  done
else
  mkdir -p "$output"
  echo page > "$output/report.html"
  echo "'$label' against '$before'"
fi
exit "${STAND_IN_CODE:-0}"
"""
QUIET_CASE = "--env sim --target toy-register --workload register --nemesis none --time-limit 2"
# Every third seed crashes in its worker, as after a bug in the harness.
CRASHING = """
import harness.soak.seed as seed

run = seed._run_seed

def crash(job):
    if job.case.seed % 3 == 0:
        raise RuntimeError("boom")
    return run(job)

seed._run_seed = crash
"""
STICKING = CRASHING.replace("seed % 3 == 0", "seed > 5").replace(
    'raise RuntimeError("boom")', "__import__('time').sleep(1e6)"
)
# A single node has no halves to cut, so the nemesis hits nothing and the verdict is unknown.
VACUOUS_CASE = QUIET_CASE.replace("none", "partition-halves")

pytestmark = pytest.mark.slow


# --- cron ------------------------------------------------------------------------------------


@pytest.fixture
def night(tmp_path):
    """Return a function that runs the script as cron does, with few environment variables."""

    def go(*arguments, case=QUIET_CASE, more="", start=subprocess.run):
        (tmp_path / "soak.conf").write_text(
            f"HARNESS={PROGRAMS}/harness\nSEEDS=${{SEEDS_WANTED:-3}}\nJOBS=1\n"
            f"CASE=({case})\nVERSION_COMMAND=(echo 'v1 (dirty)')\n{more}\n"
        )
        environ = {"HOME": str(tmp_path), "SOAK_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return start([CRON, *arguments], env=environ, cwd="/", stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip

    return go


def stand_in(folder):
    program = folder / "harness"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    return program


def labels(home):
    return (home / "labels").read_text().split()


def test_the_script_is_bash():
    subprocess.run(["bash", "-n", CRON], check=True)
    assert os.access(CRON, os.X_OK)


def test_a_good_night_is_silent_and_a_bad_one_is_reported_against_it(night, tmp_path):
    done = night()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (label,) = labels(tmp_path)
    assert re.fullmatch(r"\d{8}-\d{6}-v1--dirty-", label)
    assert (tmp_path / "next-seed").read_text() == "4\n"
    assert not (tmp_path / "current").exists()
    assert (tmp_path / "reports" / "latest" / "report.html").stat().st_size > 1000
    summary = json.loads((tmp_path / "reports" / f"{label}.json").read_text())
    assert (summary["verdicts"]["valid"], summary["label"]) == (3, label)
    junit = ET.parse(tmp_path / "reports" / f"{label}.xml").getroot()
    assert len(list(junit.iter("testcase"))) >= 3
    runs = {path.parent.name for path in tmp_path.glob("store/register-none/*/run.json")}
    # the script finds the runs of old nights by their names
    assert {name for name in runs if name.startswith(f"{label}-")} == runs

    done = night(case=VACUOUS_CASE)
    assert done.returncode == 2
    assert done.stderr == ""
    _, second = labels(tmp_path)
    head = done.stdout.splitlines()
    assert head[0] == f"soak {second}, seeds 4..6: exit code 2 (report: 2)"
    assert "had no target" in done.stdout or "no-bite" in done.stdout
    assert f"'{second}' against '{label}'" in (tmp_path / "reports" / f"{second}.txt").read_text()
    third = night(more=f"HARNESS={stand_in(tmp_path)}")
    assert (third.returncode, third.stdout) == (0, "")
    text = (tmp_path / "reports" / f"{labels(tmp_path)[-1]}.txt").read_text()
    assert f"against '{second}'" in text
    assert (tmp_path / "next-seed").read_text() == "10\n"


def test_a_notification_is_sent(night, tmp_path):
    told = tmp_path / "told"
    work = f"HARNESS={stand_in(tmp_path)}\nexport STAND_IN_CODE=2\n"
    done = night(more=f'{work}notify() {{ echo "$1"; cat; }}\nNOTIFY=(notify)\n'
                 f'exec 3> {told}\nnotify() {{ {{ echo "$1"; cat; }} >&3; }}')  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    subject, text = told.read_text().split("\n", 1)
    assert re.fullmatch(r"soak \S+: exit code 2", subject)
    assert "page: " in text


def test_it_never_runs_twice_at_once(night, tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        busy = night()
        resumed = night("--resume")
    assert (busy.returncode, "still at work" in busy.stderr) == (75, True)
    assert (resumed.returncode, resumed.stdout, resumed.stderr) == (0, "", "")
    assert not (tmp_path / "current").exists()


def test_a_killed_night_is_resumed(night, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sitecustomize.py").write_text(STICKING)
    begun = night(more=f"SEEDS=15\nexport PYTHONPATH={tmp_path}/more", start=subprocess.Popen)

    def half_done():
        assert begun.poll() is None, begun.communicate()
        journals = tmp_path.glob("store/*/.soak/*.log")
        return any(journal.read_bytes().count(b"\n") >= 4 for journal in journals)

    wait_until(half_done)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.communicate()
    label = (tmp_path / "current").read_text().split()[0]
    done = night("--resume", more="SEEDS=5")  # a resumed night keeps its own settings
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert labels(tmp_path) == [label]
    summary = json.loads((tmp_path / "reports" / f"{label}.json").read_text())
    assert summary["verdicts"]["valid"] == summary["seeds"] == 15
    assert 1 <= summary["done_before"] < 15
    assert (tmp_path / "next-seed").read_text() == "16\n"
    assert night("--resume").returncode == 0  # nothing is left to resume
    assert labels(tmp_path) == [label]


def test_invalid_settings_are_reported_and_lose_nothing(night, tmp_path):
    done = night(case=QUIET_CASE.replace("none", "earthquake"))
    assert done.returncode == 254
    assert "no nemesis 'earthquake'" in done.stdout
    assert (tmp_path / "current").exists()
    # An interrupted soak leaves a summary file. If the next attempt fails before it writes its own,
    # the old file must not be read as its summary.
    label = (tmp_path / "current").read_text().split()[0]
    (tmp_path / "reports" / f"{label}.json").write_text('{"interrupted":true}')
    assert night("--resume", case=QUIET_CASE.replace("none", "earthquake")).returncode == 254
    assert (tmp_path / "current").exists()
    assert night("--resume", more=f"HARNESS={stand_in(tmp_path)}").returncode == 0
    assert (tmp_path / "next-seed").read_text() == "4\n"


def interrupting(tmp_path, code):
    """Create a program that reports an interrupted soak after its findings."""
    program = tmp_path / "harness"
    program.write_text(
        "#!/bin/bash\n"
        'while [ $# -gt 0 ]; do if [ "$1" = --summary-json ]; then file=$2; fi; shift; done\n'
        f'echo \'{{"interrupted":true}}\' > "$file"; exit {code}\n'
    )
    program.chmod(0o755)
    return f"HARNESS={program}"


def test_a_night_at_work_outlives_an_update_of_the_script(tmp_path):
    # Bash reads a script while it runs, so an update in place could change the rest of the night.
    script, program = tmp_path / "nightly.sh", tmp_path / "harness"
    script.write_bytes(CRON.read_bytes())
    script.chmod(0o755)
    program.write_text(
        f"#!/bin/bash\nyes 'exit 99' | head -n 2000 > {script}\n"
        "while [ $# -gt 0 ]; do\n"
        '  if [ "$1" = --summary-json ]; then echo "{}" > "$2"; fi; shift\n'
        "done\n"
    )
    program.chmod(0o755)
    (tmp_path / "soak.conf").write_text(f"HARNESS={program}\nSEEDS=3\n")
    environ = {"HOME": str(tmp_path), "SOAK_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([script], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "next-seed").read_text() == "4\n"
    assert "exit 99" in script.read_text()


@pytest.mark.parametrize("code", [130, 1])
def test_an_interrupted_night_goes_on_even_if_it_found_a_bug(night, tmp_path, code):
    assert night(more=interrupting(tmp_path, code)).returncode == code
    assert (tmp_path / "current").exists()
    assert not (tmp_path / "next-seed").exists()
    assert night("--resume", more=f"HARNESS={stand_in(tmp_path)}").returncode == 0
    assert (tmp_path / "next-seed").read_text() == "4\n"


def test_old_nights_are_forgotten(night, tmp_path):
    work = f"HARNESS={stand_in(tmp_path)}\nKEEP_NIGHTS=2\nSEEDS=1\n"
    # nights within one second differ only in the version, and each needs its own label
    for number in range(3):
        assert night(more=f"{work}VERSION_COMMAND=(echo 'v{number} (dirty)')").returncode == 0
    kept = labels(tmp_path)
    assert len(kept) == 2
    assert {path.stem for path in (tmp_path / "logs").iterdir()} == set(kept)
    runs = [path for path in tmp_path.glob("store/register-none/*-seed-*") if path.is_dir()]
    assert sorted(path.name.split("--dirty-")[1].rsplit("-", 1)[1] for path in runs) == ["2", "3"]
    pages = {path.parent.name for path in (tmp_path / "reports").glob("*/report.html")}
    assert pages == {*kept, "latest"}


# --- GitHub Actions --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workflow():
    return yaml.safe_load(WORKFLOW.read_text())


def test_the_workflow_is_valid_for_github(workflow):
    assert set(workflow) == {"name", True, "permissions", "concurrency", "env", "jobs"}
    triggers = workflow[True]  # YAML 1.1 reads `on` as a boolean; GitHub does not
    assert set(triggers) == {"schedule", "workflow_dispatch"}
    (job,) = workflow["jobs"].values()
    assert {"runs-on", "timeout-minutes", "steps"} == set(job)
    for step in job["steps"]:
        assert set(step) <= {"uses", "with", "name", "run", "if"}
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"actions/[a-z-]+(/[a-z]+)?@v\d+", step.get("uses", "actions/a@v1"))
        script = step.get("run", "")
        assert "${{" not in script, "expressions in scripts can be injected into"
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    uses = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
    assert uses.count("actions/upload-artifact") == 2
    assert {"actions/cache/restore", "actions/cache/save"} <= set(uses)


@pytest.fixture
def github(workflow, tmp_path):
    """Return a function that runs the workflow's scripts like GitHub, except the installation."""
    (job,) = workflow["jobs"].values()

    def go(number, case=QUIET_CASE, **more):
        runner = {
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "GITHUB_RUN_NUMBER": str(number),
            "GITHUB_SHA": f"{number:040x}"[::-1],
            "GITHUB_ENV": str(tmp_path / "env"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "SEEDS": "3",
            "CASE": case,
            **more,
        }
        (tmp_path / "env").write_text("")
        codes, said = {}, ""
        for step in job["steps"]:
            name = step.get("name")
            if "run" not in step or name == "install":
                continue
            if set(codes.values()) - {0} and "always()" not in step.get("if", ""):
                continue
            lines = (tmp_path / "env").read_text().splitlines()
            given = dict(line.split("=", 1) for line in lines)
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=tmp_path, env=runner | given, capture_output=True, text=True, check=False,
            )  # fmt: skip
            codes[name] = done.returncode
            said += done.stdout + done.stderr
        return codes, said

    return go


def test_a_crashed_seed_costs_the_workflow_nothing_but_its_colour(github, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sitecustomize.py").write_text(CRASHING)
    codes, said = github(1, PYTHONPATH=str(tmp_path / "more"))
    assert codes == {"label": 0, "soak": 255, "report": 0}, said
    assert "boom" in (tmp_path / "summary.md").read_text()
    label = (tmp_path / "soak" / "last-label").read_text().strip()
    assert "CRASH  2 runs" in (tmp_path / "report.txt").read_text()

    codes, said = github(2, VACUOUS_CASE)
    assert codes == {"label": 0, "soak": 2, "report": 0}, said
    kept = [path.parent.name for path in (tmp_path / "soak" / "store").glob("*/*/run.json")]
    assert len([name for name in kept if name.startswith(f"{label}-")]) == 2
    assert f"against '{label}'" in (tmp_path / "report.txt").read_text()
    assert "::error title=unknown%3A stats" in said
    assert len(list((tmp_path / "failing").iterdir())) == 3
    assert len(list(ET.parse(tmp_path / "junit.xml").getroot().iter("testcase"))) >= 3
    assert (tmp_path / "report" / "report.html").stat().st_size > 1000
    summary = (tmp_path / "summary.md").read_text()
    assert summary.count("<p>Soak register-") == 2


def test_the_workflow_installs_the_harness_from_its_sources(workflow, tmp_path):
    (job,) = workflow["jobs"].values()
    (install,) = [step["run"] for step in job["steps"] if step.get("name") == "install"]
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'my-target'\nversion = '1'\n"
        "[build-system]\nrequires = []\nbuild-backend = 'setuptools.build_meta'\n"
    )
    (tmp_path / "pip").write_text(
        f"#!/bin/sh\nshift\nexec {sys.executable} -m pip install --dry-run --no-deps --no-index "
        '--no-build-isolation --ignore-installed "$@"\n'
    )
    (tmp_path / "pip").chmod(0o755)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", install],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "HARNESS": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Would install catalog-harness" in done.stdout
    assert "Would install my-target" in done.stdout.replace("my_target", "my-target")


def test_the_workflow_soaks_reports_and_compares(github, tmp_path):
    (tmp_path / "bin").mkdir()
    stand_in(tmp_path / "bin")
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"

    codes, said = github(1, PATH=path)
    assert codes == {"label": 0, "soak": 0, "report": 0}, said
    first = (tmp_path / "soak" / "last-label").read_text().strip()
    assert first == "n1-100000000000"
    assert (tmp_path / "report" / "report.html").exists()
    assert list((tmp_path / "failing").iterdir()) == []

    codes, said = github(2, PATH=path, STAND_IN_CODE="2")
    assert codes == {"label": 0, "soak": 2, "report": 0}, said
    second = (tmp_path / "soak" / "last-label").read_text().strip()
    assert (tmp_path / "soak" / "label-before").read_text().strip() == first

    codes, said = github(2, PATH=path)  # run the same night again, and compare it with the first
    assert codes == {"label": 0, "soak": 0, "report": 0}, said
    assert f"'{second}' against '{first}'" in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "soak" / "label-before").read_text().strip() == first

    codes, said = github(3, PATH=path)
    assert set(codes.values()) == {0}, said
    assert f"against '{second}'" in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "summary.md").read_text().count(f"soak {second}\n") == 2
    kept = {path.parent.name for path in (tmp_path / "soak" / "store").glob("*/*/run.json")}
    assert not [name for name in kept if name.startswith(first)]
    assert [name for name in kept if name.startswith(second)]
