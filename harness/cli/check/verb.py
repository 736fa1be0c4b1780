"""`harness check PATH...`: judges stored runs again, and histories from other tools."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from harness.cli.check.find_tasks import Failed, Task, find_tasks
from harness.cli.check.limit import add_check_limit
from harness.cli.check.tasks import CheckRequest, Outcome, judge_task
from harness.cli.output import note, say
from harness.cli.parser import Parser, add_verbose
from harness.cli.run.verdict_text import described
from harness.cli.styles import HEADLINE_STYLES, joined, styled
from harness.errors import EXIT_CRASH, HistoryError, UsageError, choices_near, counted
from harness.formats.edn.forms import parse_forms
from harness.ops import ModelSettings, Verdict, worst
from harness.registry import plugin_names
from harness.verdict.judge import EXIT_CODES, Judgement, load_model, model_names
from harness.vocabularies.edn import is_edn_atom, settled, text_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

JOBS_MAX: Final = 256
SENTENCES_MAX: Final = 40
FAILURES_SHOWN_MAX: Final = 20

EPILOG: Final = """histories:
  a run's folder        judged by the checkers of its workload, unless a model is named
  a file                Jepsen's EDN, logs and JSON, Porcupine's logs, the tables of registers
                        and catalogs, a sealed history.parquet; the content decides
  a Jepsen test folder  its history.edn, or else its history.txt or jepsen.log
  any other folder      every run and every history below it, by suffix and content, but nothing
                        whose name begins with a dot

Without --model and --elle, a history's format and operations suggest the model.

examples:
  harness check store/ddl-partition-leader/latest
  harness check --model cas-register --json histories/
  harness check --elle list-append --consistency-model serializable history.edn

exit codes, the first that applies: 1 a history is invalid, 255 a check crashed, 254 a history
cannot be read (or a usage error), 2 a verdict is unknown, 0 all are valid or permitted"""


def main(arguments: Sequence[str]) -> int:
    """Check every history; return the exit code of the worst verdict or failure."""
    parsed = _parse(arguments)
    request = _request(parsed)
    tasks, aside, failures = find_tasks(parsed.path)
    if aside.files:
        what = counted(aside.files, "file")
        note(
            f"harness: skipped {what} without a history"
            f"{': ' if aside.files == 1 else '; the first is '}{str(aside.first)!r}"
        )
    verdicts = []
    for outcome in _outcomes(tasks, request, jobs=min(parsed.jobs, len(tasks))):
        if isinstance(outcome, Failed):
            failures.append(outcome)
            continue
        verdicts.append(outcome.verdict)
        if parsed.json:
            say(msgspec.json.encode(outcome.report).decode())
        else:
            say(*[""] * (len(verdicts) > 1), *_text(outcome, full=parsed.verbose))
        if outcome.warning is not None:
            note(f"harness: {outcome.warning}")
        if outcome.report.get("recorded_verdict") == "invalid" != outcome.verdict.value:
            note(f"harness: {outcome.report['run']} was invalid before")
    for failure in failures[:FAILURES_SHOWN_MAX]:
        note(f"harness: {failure.reason}")
    if len(failures) > FAILURES_SHOWN_MAX:
        note(f"harness: {len(failures) - FAILURES_SHOWN_MAX} more histories have no verdict")
    if len(verdicts) > 1 and not parsed.json:
        say("", _all_in_all(verdicts, failures))
    return _exit_code(verdicts, failures)


def _all_in_all(verdicts: list[Verdict], failures: list[Failed]) -> Text:
    of_each = Counter(verdicts)
    counts = ", ".join(f"{of_each[each]} {each.value}" for each in Verdict if of_each[each])
    unread = f", {len(failures)} without a verdict" if failures else ""
    histories = f"{len(verdicts) + len(failures)} histories"
    proven = not failures or Verdict.INVALID in verdicts
    return _headline(
        worst(verdicts) if proven else Verdict.UNKNOWN, f"{histories}: {counts}{unread}"
    )


def _headline(verdict: Verdict, about: str) -> Text:
    return joined(styled(verdict.value.upper(), HEADLINE_STYLES[verdict.value]), f"  {about}")


def _exit_code(verdicts: list[Verdict], failures: list[Failed]) -> int:
    """Return 1 if a history is invalid, else a failure's exit code, else the worst verdict's."""
    if failures and Verdict.INVALID not in verdicts:
        return max(failure.exit_code for failure in failures)
    return EXIT_CODES[worst(verdicts)]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness check",
        description="Judge stored runs again, and histories that others recorded.\n"
        "A run that was cut short is read from its op log.",
        epilog=EPILOG,
    )
    parser.add_argument("path", nargs="+", type=Path, metavar="PATH", help="a run, file or folder")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--model", metavar="M", help="check linearizability against this model")
    chosen.add_argument(
        "--elle", metavar="KIND", help="check isolation: list-append, rw-register, closed-predicate"
    )
    parser.add_argument(
        "--consistency-model",
        action="append",
        default=[],
        metavar="C",
        help="with --elle: a consistency model that must hold; repeatable "
        "(default: strict-serializable)",
    )
    parser.add_argument(
        "--anomalies",
        action="append",
        default=[],
        metavar="A,B",
        help="with --elle: anomalies that must not occur, even if allowed by the models",
    )
    for flag, text in (
        ("--linearizable-keys", "each key on its own is linearizable"),
        ("--sequential-keys", "each key on its own is sequentially consistent"),
        ("--wfr-keys", "within a transaction, writes of a key follow its reads"),
    ):
        parser.add_argument(flag, action="store_true", help=f"with --elle rw-register: {text}")
    parser.add_argument(
        "--independent",
        action=argparse.BooleanOptionalAction,
        help="whether values are [key value] pairs of jepsen.independent, and each key is a "
        "separate object (default: the shape of the values decides)",
    )
    parser.add_argument(
        "--initial",
        metavar="VALUE",
        help="initial value of registers or of the keys of kv-string, in EDN or JSON; a map has "
        "one value per key (default: for registers 0 or nil, whichever fits the history); the "
        "total of a bank, or the number of permits of a semaphore",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="check this many histories at once (default: %(default)s)",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="DIR",
        help="write a page about each invalid history to this folder (default: pages about runs "
        "go to the run's folder; no pages about other histories)",
    )
    add_check_limit(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per history")
    add_verbose(parser)
    return parser.parse_args(list(arguments))


def _request(parsed: argparse.Namespace) -> CheckRequest:
    """Check the options that can be checked before a history is read; raises `UsageError`."""
    if not 1 <= parsed.jobs <= JOBS_MAX:
        raise UsageError(f"--jobs is {parsed.jobs}; give a number from 1 to {JOBS_MAX}")
    for kind in ("model", "elle"):
        name = getattr(parsed, kind)
        if name is not None:
            require_kind(name, kind)
    if parsed.html is not None:
        try:
            parsed.html.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--html is {str(parsed.html)!r}, which cannot be a folder: {error.strerror}"
            ) from error
    return CheckRequest(
        model=parsed.model or parsed.elle,
        settings=ModelSettings(
            consistency_models=tuple(parsed.consistency_model),
            anomalies=tuple(
                name.strip() for names in parsed.anomalies for name in names.split(",")
            ),
            linearizable_keys=parsed.linearizable_keys,
            sequential_keys=parsed.sequential_keys,
            wfr_keys=parsed.wfr_keys,
            independent=parsed.independent,
            initial=UNSET if parsed.initial is None else _value(parsed.initial),
        ),
        time_limit_s=parsed.check_time_limit,
        html=parsed.html,
    )


def _value(text: str) -> object:
    with contextlib.suppress(ValueError):
        # JSON comes first, because EDN would read `null` as a symbol
        value = json.loads(text, parse_constant=_no_number)
        return text_of(value) if isinstance(value, str) else value
    with contextlib.suppress(HistoryError):
        values = [settled(form) for form in parse_forms(text)]
        if len(values) == 1:
            _require_comparable(text, values[0])
            return values[0]
    raise UsageError(
        f"--initial is {text!r}; give one value in EDN or JSON, such as 0, nil or {{:x 1}}"
    )


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _require_comparable(text: str, value: object) -> None:
    """Raise `UsageError` for NaN (it equals nothing) and for a symbol (it lacks quotes)."""
    values = [value]
    if isinstance(value, dict):
        values += [*value, *value.values()]
    if "##NaN" in values:
        raise UsageError(f"--initial is {text!r}, but ##NaN equals nothing, not even itself")
    for each in values:
        if isinstance(each, str) and each.startswith("#'") and is_edn_atom(each):
            name = each[2:]
            quoted = f"""'"{name}"'"""
            raise UsageError(
                f"--initial is {text!r}, in which {name} is a symbol of EDN; a string has quotes "
                f"that the shell must not remove, as in {quoted}, and a keyword is written :{name}"
            )


def require_kind(name: str, kind: str) -> None:
    """Raise `UsageError` if no model of this kind is called `name`."""
    if name in plugin_names("checkers"):
        actual = load_model(name).kind
        if actual != kind:
            raise UsageError(f"--{kind} is {name!r}, a name of --{actual}; use --{actual} {name}")
        return
    see = "harness list checkers"
    raise UsageError(f"--{kind} is {name!r}; {choices_near(name, model_names(kind), see=see)}")


def _outcomes(tasks: list[Task], request: CheckRequest, *, jobs: int) -> Iterator[Outcome | Failed]:
    """Judge all tasks; yield the results in the order of the tasks."""
    if jobs <= 1:
        yield from (judge_task(task, request) for task in tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            for task, judging in [(task, _submit(pool, task, request)) for task in tasks]:
                try:
                    yield judging.result()
                # One dead worker breaks the whole pool, so each remaining task gets a process of
                # its own.
                except BrokenProcessPool:
                    yield _judge_alone(task, request, context)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _submit(
    pool: ProcessPoolExecutor, task: Task, request: CheckRequest
) -> Future[Outcome | Failed]:
    try:
        return pool.submit(judge_task, task, request)
    except BrokenProcessPool as error:
        broken: Future[Outcome | Failed] = Future()
        broken.set_exception(error)
        return broken


def _judge_alone(task: Task, request: CheckRequest, context: SpawnContext) -> Outcome | Failed:
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(judge_task, task, request).result()
        except BrokenProcessPool:
            reason = f"{task.path}: the process that judged it died; it may have run out of memory"
            return Failed(reason, EXIT_CRASH)


def _text(outcome: Outcome, *, full: bool) -> list[RenderableType]:
    """Format the report on one history as text; the last line is its verdict."""
    report = outcome.report
    if "checkers" in report:
        return _run_text(outcome, full=full)
    lines = [f"  not: {', '.join(report['not'])}"] if report["not"] else []
    sentences = [line for result in outcome.results for line in result.explanation]
    if outcome.verdict is Verdict.VALID:
        sentences = [f"note: {line}" for line in sentences]
    lines += [f"  {line}" for line in sentences[:SENTENCES_MAX]]
    if len(sentences) > SENTENCES_MAX:
        lines.append(f"  ... and {counted(len(sentences) - SENTENCES_MAX, 'more sentence')}")
    lines.append(f"  {report['reason']}")
    if outcome.page is not None:
        lines.append(f"  picture: {outcome.page}")
    operations = counted(report["operations"], "operation")
    took = f"{operations}, {report['model']}, {report['seconds']:.3f} s"
    return [*lines, _headline(outcome.verdict, f"{report['path']} ({took})")]


def _run_text(outcome: Outcome, *, full: bool) -> list[RenderableType]:
    report = outcome.report
    parts = [*described(Judgement(outcome.results), full=full), ""]
    if report["note"] is not None:
        parts.append(f"  note: {report['note']}")
    recorded = report["recorded_verdict"]
    if recorded is not None and recorded != outcome.verdict.value:
        parts.append(
            f"  note: the run itself was {recorded}; checkers have changed since, or had "
            "another time limit"
        )
    if outcome.page is not None:
        parts.append(f"  picture: {outcome.page}")
    operations = counted(report["operations"], "operation")
    return [*parts, _headline(outcome.verdict, f"{report['run']} ({operations})")]
