"""`harness replay`: repeats a simulated run, and stops it at a moment, to inspect it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import IMPORTED, Case, load_case, replay_command
from harness.cli.output import note, say
from harness.cli.parser import Parser, verb_module
from harness.cli.run.progress import Progress
from harness.errors import EXIT_INTERRUPTED, InfrastructureError, UsageError, counted
from harness.ops import History
from harness.replay.debugger import debug
from harness.replay.gather import look
from harness.replay.moments import FORMS, End, Order, Quit, Steps, parse_until
from harness.replay.page import PAGE, write_page
from harness.replay.prompt import Prompt
from harness.replay.replay import Ended, Replay
from harness.replay.text import whole_text
from harness.replay.view import Stopped
from harness.replay.watch import Stop, Watch
from harness.run.keep import SIM
from harness.store import load_run
from harness.support.atomic_file import refuse_folder

EPILOG: Final = f"""moments: {FORMS}
  op=812                        right after op 812 of the history was recorded
  time=8.4                      before the first event at or after 8.4 s
  event=leader:2,node=m2        while m2 announces its event `leader` for the second time

examples:
  harness replay store/ddl-partition-leader/latest --until op=502
  harness replay RUN --until event=leader:2 --pdb
  harness replay RUN --until time=6.1 --step
  harness replay RUN --until op=502 --json | jq .nodes[0].pages"""


def main(arguments: Sequence[str]) -> int:
    """Replay a run up to the chosen moment, or to its end."""
    parsed = _parse(arguments)
    case, original, environment, folder = _load(parsed.run)
    if parsed.until is None and not (parsed.step or parsed.pdb):
        return _plain(parsed, environment, folder)
    if environment != SIM:
        raise UsageError(
            f"{str(parsed.run)!r} ran in {environment}, where time cannot be stopped; run its case "
            f"in the simulation (`{replay_command(folder / 'case.json', SIM)}`), and if that fails "
            "as well, replay that run"
        )
    return _Session(parsed, Replay(case, original), folder).run()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness replay",
        usage="harness replay RUN|CASE [OPTION ...]",
        description="Repeat a simulated run exactly, and stop it at a moment. "
        "Shows every node, messages in flight, timers, tasks, files, faults and operations. "
        "Without a moment the case just runs again, as with `harness run --case`.",
        epilog=EPILOG,
    )
    parser.add_argument("run", type=Path, metavar="RUN|CASE", help="a run's folder, or a case file")
    parser.add_argument("--until", metavar="MOMENT", help="where to stop, such as op=812")
    parser.add_argument(
        "--step", action="store_true", help="open a prompt there: step, until, show, pdb, quit ..."
    )
    parser.add_argument(
        "--pdb", action="store_true", help="open Python's debugger in the code of the node there"
    )
    parser.add_argument(
        "--node", metavar="NODE", help="show only this node, or open the debugger in it"
    )
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help=f"write the state as an HTML page (default: {PAGE} in the folder of a run)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parsed = parser.parse_args(list(arguments))
    if parsed.json and (parsed.step or parsed.pdb):
        raise UsageError("--json prints one state, so it cannot be combined with --step or --pdb")
    if parsed.pdb and parsed.until is None and not parsed.step:
        raise UsageError(f"--pdb needs a moment: add --until {FORMS}")
    if parsed.until is None and (parsed.node or parsed.page):
        raise UsageError(f"--node and --page need a moment: add --until {FORMS}")
    refuse_folder("--page", parsed.page)
    return parsed


def _load(path: Path) -> tuple[Case, History | None, str, Path]:
    """Return the case, the stored history (if any), the environment, and the case's folder."""
    if not path.is_dir():
        return load_case(path), None, SIM, path.parent
    stored = load_run(path)
    if stored.case.target == IMPORTED or stored.foreign:
        raise UsageError(
            f"{str(path)!r} has an imported history, which no case can produce again; "
            "`harness check` judges it"
        )
    if stored.record is None:
        note(f"harness: {stored.note}; its environment is unknown, and the simulation replays it")
        return stored.case, stored.history, SIM, path
    return stored.case, stored.history, stored.record.environment, path


def _plain(parsed: argparse.Namespace, environment: str, folder: Path) -> int:
    case = folder / "case.json" if parsed.run.is_dir() else parsed.run
    note(f"no --until, so this is `{replay_command(case, environment)}`")
    flags = [flag for flag in ("json", "quiet") if getattr(parsed, flag)]
    words = ["--env", environment, "--case", str(case), *(f"--{flag}" for flag in flags)]
    return verb_module("run").main(words)


class _Session:
    def __init__(self, parsed: argparse.Namespace, replay: Replay, folder: Path) -> None:
        self._parsed = parsed
        self._replay = replay
        self._folder = folder
        self._progress = Progress(simulated=True)
        self._prompt = Prompt(self._look, write_page, stdin=sys.stdin, stdout=sys.stdout)
        if not (parsed.quiet or parsed.json):
            replay.listen(self._progress)

    def run(self) -> int:
        """Replay the run; return 0, or raise `UsageError` if the run ended before the moment."""
        parsed = self._parsed
        order: Order = Steps(1) if parsed.until is None else parse_until(parsed.until)
        try:
            ended = self._replay.run(order, self._on_stop)
        finally:
            self._progress.finish()
        if ended.missed is not None:
            note(f"harness: {ended.missed}")
        if ended.whole and not parsed.json:
            say(_end_text(ended, self._replay))
        return EXIT_INTERRUPTED if self._prompt.is_interrupted else 0

    def _on_stop(self, watch: Watch, stop: Stop) -> Order:
        self._progress.finish()
        self._warn()
        parsed = self._parsed
        if parsed.pdb and watch.stops == 1:
            debugger = debug(
                watch,
                stop,
                parsed.node,
                stdin=sys.stdin,
                stdout=sys.stdout,
                stops_again=parsed.step,
            )
            if debugger.has_quit:
                return Quit()
            if debugger.goes_on or not parsed.step:
                return End()
        if parsed.step:
            return self._prompt.at(watch, stop)
        self._show(self._look(watch, stop))
        return Quit()

    def _look(self, watch: Watch, stop: Stop) -> Stopped:
        return look(self._replay.plan, watch, stop)

    def _warn(self) -> None:
        at = self._replay.differs_at
        if at is not None:
            note(
                f"harness: the replay differs from the stored run, from op {at} on; the code or a "
                "plug-in has changed since"
            )

    def _show(self, state: Stopped) -> None:
        parsed = self._parsed
        name = parsed.node
        if name is not None and state.node(name) is None:
            raise UsageError(
                f"there is no node {name!r}; the nodes are "
                f"{', '.join(node.name for node in state.nodes)}"
            )
        if parsed.json:
            say(msgspec.json.encode(self._as_json(state)).decode())
        else:
            nodes = [node for node in state.nodes if name in {None, node.name}]
            chosen = msgspec.structs.replace(state, nodes=nodes)
            say(*whole_text(chosen, full=name is not None))
        self._write_page(state)

    def _write_page(self, state: Stopped) -> None:
        """Write the page, if there is a place for it. A run in a read-only store can be replayed,
        too, but without a page.
        """
        parsed = self._parsed
        if parsed.page is not None:
            place = parsed.page
            write_page(state, place)
        elif parsed.run.is_dir() and not parsed.json:
            place = parsed.run / PAGE
            try:
                write_page(state, place)
            except InfrastructureError as error:
                note(f"harness: no page: {error}; choose a file with --page FILE")
                return
        else:
            return
        if not parsed.json:
            say("", f"page  {place}")

    def _as_json(self, state: Stopped) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(state)
        data["state_sha256"] = state.sha256()
        data["differs_at"] = self._replay.differs_at
        if self._parsed.node is not None:
            data["nodes"] = [each for each in data["nodes"] if each["name"] == self._parsed.node]
        return data


def _end_text(ended: Ended, replay: Replay) -> str:
    compared = ""
    if replay.has_original:
        compared = f", {'like' if ended.differs_at is None else 'unlike'} the stored run"
    return (
        f"the run ended at {ended.time_s:.3f} s, after {counted(ended.ops, 'op')}{compared}; "
        f"trace {ended.trace_digest}"
    )
