"""`harness up`: starts a cluster that runs until `harness down`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.run.case_options import DEFAULT_TARGET, parse_target_options, target_case_from
from harness.cli.run.choose import AUTO, choose_environment
from harness.cli.up.text import standing_text
from harness.errors import UsageError, counted
from harness.plan.planning import plan_target
from harness.run.starting import explaining_start
from harness.up.compose import compose_file
from harness.up.kept_data import find_kept, refuse_other_nodes
from harness.up.lifecycle import start
from harness.up.records import check_name

EPILOG = """examples:
  harness up
  harness up --env process --name dev --masters 5 --tservers 5
  harness up --print-compose > docker/compose.yaml

then: harness status, harness break 'kill leader' --for 30s, harness heal --all, harness down"""
SIMULATION = "sim"


def main(arguments: Sequence[str]) -> int:
    """Start the cluster; return the exit code 0 as soon as it serves clients."""
    parsed = _parse(arguments)
    if parsed.print_compose:
        say(compose_file(target_case_from(parsed, parsed.seed or 0)).rstrip())
        return 0
    if parsed.env == SIMULATION:
        raise UsageError(
            "--env sim: a simulation ends with the command that runs it, so a cluster cannot stay; "
            "use --env process or --env docker"
        )
    name = parsed.name or (parsed.usual_name if parsed.system else parsed.target) or DEFAULT_TARGET
    check_name(name)
    kept = None if parsed.fresh else find_kept(name)
    before = None if kept is None else kept[1].order
    case = target_case_from(parsed, parsed.seed, before=None if before is None else before.case)
    environment = choose_environment(parsed.env or (AUTO if before is None else before.environment))
    # raises `UsageError` for impossible options, before anything is created
    plan = plan_target(case, environment)
    if kept is not None:
        refuse_other_nodes(*kept, plan.nodes, environment)
    with explaining_start(plan):
        environment.prepare_nodes(plan.nodes, note)
    note(
        f"starting {counted(len(plan.nodes), 'node')} of {case.system}/{case.profile} in "
        f"{environment.name}" + (f", on data kept at {kept[1].at} in {kept[0]}" if kept else "")
    )
    standing = start(name, environment.name, case, kept=kept)
    say(*([msgspec.json.encode(standing).decode()] if parsed.json else standing_text(standing)))
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness up",
        description="Start a cluster that keeps running, wait until it serves clients, and print "
        "its addresses.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--env",
        metavar="ENV",
        help="process, docker, or auto: docker if it works here, else process (default: the "
        "environment of the kept data, or auto)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="name of the cluster (default: its target's name)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of all random choices (default: a random seed)"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start without the data that `harness down --keep-data` kept under this name",
    )
    parser.add_argument(
        "--print-compose",
        action="store_true",
        help="start nothing, but print a file for `docker compose` with the same nodes",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    return parse_target_options(parser, arguments)
