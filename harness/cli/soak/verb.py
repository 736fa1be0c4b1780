"""`harness soak`: runs many seeds of one case; in parallel in the simulation, else one by one."""

from __future__ import annotations

import argparse
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from harness.case import Case
from harness.cli.output import note, say
from harness.cli.run.case_options import case_from
from harness.cli.run.choose import choose_environment
from harness.cli.run.freezing import freezing, frozen_text
from harness.cli.run.verb import default_name
from harness.cli.shrink.soaked import ShrunkRun, shrink_groups
from harness.cli.soak.options import SHRUNK_MAX, SIM, check_writable, parse_soak
from harness.cli.soak.output import Replays, SinkArtefacts, SoakOutput
from harness.cli.soak.progress import SoakProgress
from harness.errors import EXIT_CRASH, EXIT_INTERRUPTED, EXIT_INVALID, InfrastructureError, counted
from harness.freeze.conducting import FreezingConductor
from harness.ops import Verdict
from harness.plan.planning import plan_case
from harness.plan.random_case import NONE, undrawn
from harness.plugins import Environment, SoakExecutor, SoakSink, SunkRuns
from harness.registry import load_plugin
from harness.soak.campaign import Campaign, SoakSpec
from harness.soak.pool import soak
from harness.soak.real import soak_one_by_one
from harness.soak.result import SeedResult, exit_code_of, failure_groups
from harness.support.interrupts import sigterm_interrupts
from harness.support.workers import Crew
from harness.verdict.judge import checkers_of
from harness.verdict.known import KnownFailures

TakeResult = Callable[[SeedResult], bool]
SPARK: Final = "spark"
LAKE: Final = "lake"


def main(arguments: Sequence[str]) -> int:
    """Run all seeds that have no result yet; return the exit code of the worst verdict."""
    parsed = parse_soak(arguments)
    environment = choose_environment(parsed.env)
    parsed.env = environment.name
    sink = None if parsed.lake is None else functools.partial(_open_lake, parsed.lake)
    spec = _spec(parsed, environment)
    parsed.conductor = freezing(checkers_of(spec.case), environment) if parsed.freeze else None
    campaign = Campaign(spec, fresh=parsed.fresh, sink=sink)
    try:
        check_writable(parsed)
        for text in campaign.notes:
            note(f"soak: {text}")
        return _run(campaign, environment, parsed, Replays(arguments, parsed))
    finally:
        campaign.close()


def _open_lake(uri: str, name: str, prefix: str) -> SunkRuns:
    sink: SoakSink = load_plugin("soak_sinks", LAKE)
    return sink.open(uri, name=name, prefix=prefix)


def _spec(parsed: argparse.Namespace, environment: Environment) -> SoakSpec:
    asked: Case = case_from(parsed, None if parsed.case is not None else parsed.first)
    planned = plan_case(msgspec.structs.replace(asked, faults=None), environment).case
    case = msgspec.structs.replace(undrawn(planned), faults=None)
    if planned.drawn:  # other seeds choose other nemeses, so check the rest of the case without any
        plan_case(msgspec.structs.replace(case, nemeses=(NONE,), draw=0), environment)
    return SoakSpec(
        case=case,
        environment=environment.name,
        label=parsed.label,
        first=parsed.first,
        last=parsed.last,
        store=parsed.store,
        name=parsed.name or default_name(asked),
        keep=parsed.keep,
        stop_after=parsed.stop_after,
        search=parsed.search,
    )


def _run(
    campaign: Campaign, environment: Environment, parsed: argparse.Namespace, replays: Replays
) -> int:
    quiet = parsed.quiet or parsed.json
    progress = (
        None
        if quiet
        else SoakProgress(campaign.tally, campaign.spec.seeds, may_stop=parsed.stop_after > 0)
    )
    begin_s = time.monotonic()
    interrupted = False

    artefacts = SinkArtefacts(campaign, parsed)

    def take(result: SeedResult) -> bool:
        artefacts.make(result)
        go_on = campaign.take(result, sunk=parsed.spark_master is not None)
        if progress is not None and result.stop is None:
            progress.take(result)
            if parsed.spark_master is None:
                progress.show()
        return go_on

    try:
        if not campaign.enough and parsed.spark_master is not None:
            _on_spark(campaign, parsed, take, progress)
        elif not campaign.enough:
            interrupted = _work(campaign, environment, parsed, take, progress)
        left = campaign.spec.seeds - campaign.tally.seeds
        if left and not (interrupted or campaign.enough or campaign.stopped is not None):
            campaign.stopped = f"not run: {counted(left, 'seed')}; run the same command again"
    except KeyboardInterrupt:
        interrupted = True
    # a summary of the recorded seeds follows, even if the disk is full
    except InfrastructureError as error:
        campaign.stopped = str(error)
    finally:
        if progress is not None:
            progress.finish()
    try:
        campaign.flush()
    except KeyboardInterrupt:
        interrupted = True
    except InfrastructureError as error:
        campaign.stopped = str(error)
    code = _exit_code(campaign, parsed.known_failures, interrupted=interrupted)
    output = SoakOutput(
        campaign=campaign,
        parsed=parsed,
        replays=replays,
        wall_s=time.monotonic() - begin_s,
        exit_code=code,
        interrupted=interrupted,
    )
    if campaign.stopped is not None:
        note(f"harness: {campaign.stopped}")
    output.make_artefacts()
    if parsed.shrink and not interrupted:
        with sigterm_interrupts():
            output.shrunk = _shrunk(campaign, parsed)
    say(*([output.json()] if parsed.json else output.text()))
    try:
        output.write_files()
    except InfrastructureError as error:  # exit as after a crash, unless a seed is invalid
        note(f"harness: {error}")
        return code if code == EXIT_INVALID else EXIT_CRASH
    return code


def _shrunk(campaign: Campaign, parsed: argparse.Namespace) -> list[ShrunkRun]:
    """Shrink the first failing run of each signature that is not a known failure."""
    failures: KnownFailures = parsed.known_failures
    groups = failure_groups(campaign.results())
    return shrink_groups(
        [group for group in groups if not failures.excuses(group.signature)],
        campaign.spec.folder,
        most=SHRUNK_MAX,
        jobs=parsed.jobs,
        quiet=parsed.quiet or parsed.json,
    )


def _on_spark(
    campaign: Campaign, parsed: argparse.Namespace, take: TakeResult, progress: SoakProgress | None
) -> None:
    """Run the pending seeds on Spark. Results arrive in waves; progress is shown after each."""
    job = campaign.job(campaign.spec.first)
    # executors run the reporters themselves, before they move a run into the lake
    if campaign.sink is not None:
        names = tuple(parsed.reporter_names)
        job = msgspec.structs.replace(job, reporters=names, artefacts=parsed.artefacts)

    def pending() -> Iterator[int]:
        for seed in campaign.pending():
            if progress is not None:
                progress.show()
            yield seed
        if progress is not None:
            progress.show()

    executor: SoakExecutor = load_plugin("soak_executors", SPARK)
    executor.run(
        msgspec.json.encode(job),
        pending(),
        url=parsed.spark_master,
        take=lambda data: take(msgspec.json.decode(data, type=SeedResult)),
    )


def _work(
    campaign: Campaign,
    environment: Environment,
    parsed: argparse.Namespace,
    take: TakeResult,
    progress: SoakProgress | None,
) -> bool:
    """Run the pending seeds on this machine. Returns whether the user interrupted the soak."""
    if environment.name != SIM:
        listen = None if progress is None else progress.listen
        jobs = map(campaign.job, campaign.pending())
        conductor: FreezingConductor | None = parsed.conductor
        interrupted = soak_one_by_one(
            jobs, environment, on_result=take, listen=listen, conducting=conductor
        )
        if conductor is not None and conductor.standing is not None:
            campaign.stopped = "\n".join(["a run froze", *frozen_text(conductor)]).rstrip()
        return interrupted
    # CI systems send SIGTERM some time before SIGKILL, so SIGTERM works like Ctrl-C.
    with sigterm_interrupts(), contextlib.closing(Crew()) as crew:
        for wave in campaign.waves():
            watched = wave if progress is None else progress.watched(wave)
            if not soak(watched, jobs=parsed.jobs, on_result=take, crew=crew):
                break
    return False


def _exit_code(campaign: Campaign, known: KnownFailures, *, interrupted: bool) -> int:
    """Return the exit code of the soak. Seeds that a known failure excuses do not count.

    One invalid seed makes the soak invalid. A soak with unfinished seeds is never valid.
    """
    code = campaign.tally.exit_code
    if known and campaign.tally.seeds:
        left = (r.verdict for r in campaign.results() if not known.excuses(r.signature))
        code = exit_code_of({*left, Verdict.VALID.value})
    if code == EXIT_INVALID:
        return code
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CRASH if campaign.stopped is not None else code
