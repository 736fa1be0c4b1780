"""`harness run`: runs one case, from deployment to verdict."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.case import Case, replay_command
from harness.cli.check.limit import add_check_limit
from harness.cli.output import note, say
from harness.cli.parser import Parser, add_place, add_verbose
from harness.cli.run.artefacts import REPORTERS_DEFAULT, chosen_reporters, make_artefacts
from harness.cli.run.case_options import case_from, parse_case_options
from harness.cli.run.choose import AUTO, choose_environment
from harness.cli.run.freezing import freezing, frozen_report, frozen_text
from harness.cli.run.progress import Progress
from harness.cli.run.verdict_text import described, in_numbers, verdict_line
from harness.ops import Verdict
from harness.plan.planning import Plan, plan_case
from harness.plugins import Environment
from harness.run.keep import SIM, KeptRun, run_and_keep
from harness.run.phases import Outcome
from harness.run.starting import explaining_start
from harness.store import RunFolder, check_place, new_run_id
from harness.verdict.judge import Judgement

if TYPE_CHECKING:
    from rich.console import RenderableType

PAGE = "page"
EPILOG = """examples:
  harness run --nemesis partition-leader
  harness run --env sim --nemesis kill-leader,pause-leader --seed 7 --time-limit 30
  harness run --env process --bug NO-LEASE --nemesis partition-leader
  harness run --env sim --fault 'cut leader from members every 10s for 4s'
  harness run --env docker --bug NO-LEASE --nemesis partition-leader --freeze
  harness run --env docker --case store/ddl-none/latest/case.json"""


def main(arguments: Sequence[str]) -> int:
    """Run one case; returns the exit code of its verdict."""
    parsed = _parse(arguments)
    case = case_from(parsed, parsed.seed)
    reporters = chosen_reporters(parsed.reporters)
    if parsed.dry_run:
        say(plan_case(case, None).case.encode().decode().rstrip())
        return 0
    environment = choose_environment(parsed.env)
    plan = plan_case(case, environment)
    conducting = freezing(plan.checkers, environment) if parsed.freeze else None
    with explaining_start(plan):
        environment.prepare_nodes(plan.nodes, note)
    folder = _folder(parsed, plan)
    progress = Progress(simulated=environment.name == SIM)
    bugs = f"bug {','.join(plan.case.bugs)}, " if plan.case.bugs else ""
    note(
        f"{plan.target.name}/{plan.case.profile}, workload {plan.case.workload}, nemesis "
        f"{','.join(plan.case.nemeses)}, {bugs}seed {plan.case.seed}, in {environment.name}"
    )
    replay = replay_command(folder.path / "case.json", environment.name)
    try:
        with explaining_start(plan):
            kept = run_and_keep(
                plan,
                environment,
                folder,
                run_id=folder.run_id,
                time_limit_s=parsed.check_time_limit,
                replay=replay,
                link_proxy=parsed.link_proxy,
                listener=None if parsed.quiet else progress,
                conducting=conducting,
            )
    except BaseException:
        if conducting is not None and conducting.standing is not None:
            note(f"harness: the frozen cluster stays: `harness down {conducting.standing.name}`")
        place = shlex.quote(str(folder.path))
        note(
            f"harness: no verdict; the part that was recorded is kept in {place}, and if it has "
            f"operations, `harness check {place}` judges them"
        )
        raise
    finally:
        progress.finish()
    if not (parsed.quiet or parsed.json):
        note("")
    judgement = kept.judgement
    report = _report(plan, environment, kept, folder.path, replay)
    report["frozen"] = frozen_report(conducting)
    if kept.unkept is not None:
        note(f"harness: {kept.unkept}; `harness check {folder.path}` judges the history again")
    report["artefacts"] = make_artefacts(folder.path, reporters) if kept.unkept is None else {}
    if parsed.json:
        say(msgspec.json.encode(report).decode())
    else:
        frozen = frozen_text(conducting)
        say(*_text(report, judgement, kept.outcome, frozen, full=parsed.verbose))
    # A proven violation decides the exit code even if the run could not be stored.
    if kept.unkept is None or judgement.verdict is Verdict.INVALID:
        return judgement.exit_code
    return kept.unkept.exit_code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness run",
        usage="harness run [OPTION ...]",
        description="Deploy a target, drive a workload, break things, heal them, and judge "
        "the history.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--env",
        default=AUTO,
        metavar="ENV",
        help="sim, process, docker, or auto: docker if it works here, else process (default: auto)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of all random choices (default: a random seed)"
    )
    add_place(parser)
    parser.add_argument(
        "--link-proxy",
        metavar="URL|PATH",
        help="use a real Toxiproxy instead of the harness's own proxy: with --env process the URL "
        "of its server, with --env docker the path of the server's program",
    )
    add_check_limit(parser)
    parser.add_argument(
        "--reporters",
        default=REPORTERS_DEFAULT,
        metavar="LIST",
        help="reporters to run: default (all except those with output much larger than the run), "
        "all, none, or names from `harness list reporters` (default: %(default)s)",
    )
    parser.add_argument(
        "--freeze",
        action="store_true",
        help="check the history while the run goes on; at the first certain violation pause all "
        "nodes, save their states, and keep the cluster until `harness down`",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the case and exit")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    add_verbose(parser)
    parser.show_first(
        *(
            "-h",
            "--help-all",
            "--env",
            "--seed",
            "--target",
            "--system",
            "--workload",
            "--nemesis",
            "--fault",
        ),
        *("--bug", "--profile", "--time-limit", "--rate", "--concurrency", "--interval"),
        *("--duration", "--case", "--store", "--name", "--freeze", "--dry-run", "--quiet"),
        *("--verbose", "--json"),
    )
    return parse_case_options(parser, arguments)


def _folder(parsed: argparse.Namespace, plan: Plan) -> RunFolder:
    name = parsed.name or default_name(plan.case)
    check_place(parsed.store, name)
    return RunFolder(parsed.store, name, new_run_id(plan.case.seed))


def default_name(case: Case) -> str:
    """Return the default name of the folder for runs of a case: its workload and its faults."""
    faults = [re.split(r" (?:every|at|for) ", name)[0] for name in case.nemeses]
    return re.sub(r"[^\w.-]+", "-", "-".join([case.workload, *faults]))[:100]


def _report(
    plan: Plan, environment: Environment, kept: KeptRun, folder: Path, replay: str
) -> dict[str, Any]:
    outcome, judgement, record = kept.outcome, kept.judgement, kept.record
    return {
        "schema_version": 1,
        "verdict": judgement.verdict.value,
        "exit_code": judgement.exit_code,
        "environment": environment.name,
        "target": plan.case.system,
        "profile": plan.case.profile,
        "bugs": list(plan.case.bugs),
        "workload": plan.case.workload,
        "nemeses": list(plan.case.nemeses),
        "seed": plan.case.seed,
        "ops": record.ops,
        "run_s": outcome.wall_ns / 1e9,
        "interrupted": record.interrupted,
        "run": str(folder),
        "history_sha256": record.digest,
        "trace_digest": outcome.trace_digest,
        "replay": replay,
        "checkers": [msgspec.to_builtins(result) for result in judgement.results],
    }


def _text(
    report: dict[str, Any],
    judgement: Judgement,
    outcome: Outcome,
    frozen: list[str],
    *,
    full: bool,
) -> list[RenderableType]:
    parts = [*described(judgement, full=full), ""]
    if outcome.interrupted:
        parts.append("the run was interrupted: only what happened until then was checked")
    elif outcome.stop_asked:
        parts.append(
            "the interrupt came after the workload: the run is complete, nothing was skipped"
        )
    artefacts = dict(report["artefacts"])
    page = artefacts.pop(PAGE, None)
    parts.append(f"run folder      {report['run']}")
    parts += [f"{name:15} {path}" for name, path in artefacts.items()]
    if full and report["environment"] == SIM:
        parts.append(f"history SHA-256 {report['history_sha256']}")
    parts += [f"replay          {report['replay']}", "", *frozen]
    where = f"; page: {page}" if page else ""
    return [*parts, verdict_line(judgement.verdict, in_numbers(judgement), where)]
