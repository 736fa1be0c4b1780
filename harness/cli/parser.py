"""The top-level parser and the table of verbs."""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from harness import __version__
from harness.errors import UsageError
from harness.plugins import Verb
from harness.registry import load_verb, plugin_names, qualified_names

__all__ = [
    "VERBS",
    "Parser",
    "add_place",
    "add_store",
    "add_verbose",
    "build_parser",
    "known_verbs",
    "verb_module",
]

VERBS: Final[dict[str, str]] = {
    "run": "run one case: deploy, break, check",
    "soak": "run many seeds of one case; resumable",
    "check": "check stored runs again, or histories from other harnesses",
    "report": "check and aggregate a whole store, or draw the page of one run",
    "serve": "browse a store: runs, comparisons, trends",
    "trace": "write a run as a trace for the Perfetto viewer",
    "ingest": "append the runs of a store to a lake",
    "lake": "look after a lake: compact, vacuum, check, export",
    "export": "write a stored history as Jepsen EDN",
    "import": "turn a Jepsen history in EDN into a run that can be checked",
    "check-determinism": "prove that a seed replays bit for bit, or show where two runs diverge",
    "list": "list environments, targets, workloads, nemeses and checkers",
    "doctor": "show what works on this machine and how to fix the rest",
    "up": "start a cluster that stays, in containers or as processes",
    "status": "show the clusters that stand: nodes, leaders, faults that are on",
    "break": "inject one fault into a cluster that stands",
    "heal": "undo faults that were injected by hand",
    "down": "take a cluster down, and everything of it away",
    "clean": "remove what dead runs left behind",
    "image": "build the Docker image of the nodes",
}

EPILOG: Final = """examples:
  harness run --nemesis partition-leader
  harness run --env sim --nemesis kill-leader,pause-leader --seed 7
  harness soak --env sim --seeds 1..200 --nemesis partition-leader
  harness check store/ddl-none/latest

exit codes: 0 valid or permitted, 1 invalid, 2 unknown, 254 usage, 255 crash"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `UsageError`s with a suggestion.

    No argument may be empty: that is what a shell makes of a variable that is not set, and taken
    for "not given", or for the folder `.`, it would quietly test something else. Flags are written
    out; a description and epilog of several lines keep them.
    """

    def __init__(
        self, *, epilog: str | None = None, allow_abbrev: bool = False, **named: Any
    ) -> None:
        layout = argparse.HelpFormatter if epilog is None else argparse.RawDescriptionHelpFormatter
        named.setdefault("formatter_class", layout)
        super().__init__(epilog=epilog, allow_abbrev=allow_abbrev, **named)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if "" in arg_strings:
            name = "/".join(action.option_strings) or action.metavar or action.dest
            raise UsageError(
                f"{name} is '', which is no value; give one, or leave it out "
                "(is a variable of your shell not set?)"
            )
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting with 2, which would read as *unknown*."""
        raise UsageError(f"{message}{self._suggestion(message)}; see `{self.prog} --help`")

    def _suggestion(self, message: str) -> str:
        prefix = "unrecognized arguments: "
        if not message.startswith(prefix):
            return ""
        known = [flag for action in self._actions for flag in action.option_strings]
        given = message.removeprefix(prefix).split()[0].split("=")[0]
        close = difflib.get_close_matches(given, known, n=1)
        return f"; did you mean {close[0]}?" if close else ""


def add_place(parser: Parser) -> None:
    """Give `parser` the options that say where runs are kept."""
    parser.add_argument(
        "--name", metavar="NAME", help="folder below the store (default: WORKLOAD-NEMESIS)"
    )
    add_store(parser)


def add_store(parser: Parser) -> None:
    """Give `parser` the option `--store`."""
    parser.add_argument(
        "--store", type=Path, default=Path("store"), metavar="DIR", help="(default: store)"
    )


def add_verbose(parser: argparse._ActionsContainer) -> None:
    """Give `parser` the option `--verbose`."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print all that is known")


def verb_module(verb: str) -> Verb:
    """Import the module of one verb: our own, or one that a package brings by entry point."""
    if _is_module(verb):
        return cast("Verb", importlib.import_module(_module_name(verb)))
    return load_verb(verb)


def _is_module(verb: str) -> bool:
    """Whether a verb is a module of this package, which no entry point of another one replaces."""
    return verb in VERBS and importlib.util.find_spec(_module_name(verb)) is not None


def _module_name(verb: str) -> str:
    return f"harness.cli.{verb.replace('-', '_')}_verb"


def known_verbs() -> dict[str, str]:
    """Every verb with a line on what it does: ours, then those of other packages."""
    foreign: list[str] = []
    for name in plugin_names("verbs"):
        if _is_module(name):
            foreign += qualified_names("verbs", name)
        elif name not in VERBS:
            foreign.append(name)
    return {**VERBS, **dict.fromkeys(foreign, "(from an installed package)")}


def build_parser() -> argparse.ArgumentParser:
    """The parser of `harness --help` and of everything that is no verb."""
    verbs = "\n".join(f"  {name:18} {text}" for name, text in known_verbs().items())
    parser = Parser(
        prog="harness",
        usage="harness VERB [OPTION ...]",
        description=f"Chaos testing for replicated catalogs.\n\nverbs:\n{verbs}",
        epilog=EPILOG,
        allow_abbrev=True,
    )
    parser.add_argument("--version", action="version", version=f"harness {__version__}")
    parser.add_argument("verb", nargs="?", choices=list(known_verbs()), help=argparse.SUPPRESS)
    return parser
