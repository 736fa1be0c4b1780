"""The top-level parser and the table of verbs."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from harness import __version__
from harness.errors import UsageError, choices_near, counted
from harness.plugins import Verb
from harness.registry import load_verb, plugin_names, qualified_names, verb_module_name

GROUPED: Final[dict[str, dict[str, str]]] = {
    "test": {
        "run": "run one case: deploy, break, check",
        "soak": "run many seeds of one case; resumable",
        "exam": "look for every known defect, and count false alarms; resumable",
        "check": "check stored runs again, or histories from other harnesses",
        "check-determinism": "prove that a seed replays bit for bit",
    },
    "explain": {
        "shrink": "find the smallest case that fails in the same way as a run",
        "why": "find the causes of a failure, and when it became inevitable",
        "replay": "repeat a simulated run and stop it at a moment, to inspect, step and debug it",
        "bisect": "find the first commit of a repository at which a case fails",
    },
    "look": {
        "twin": "run cases on two targets, and show what differs",
        "report": "check and aggregate a whole store, or draw the page of one run",
        "serve": "browse a store: runs, comparisons, trends",
        "trace": "write a run as a trace for the Perfetto viewer",
    },
    "cluster": {
        "up": "start a cluster that keeps running, in containers or as processes",
        "status": "show running clusters: nodes, leaders, active faults",
        "break": "inject one fault into a running cluster",
        "heal": "undo faults that were injected by hand",
        "down": "stop a cluster and remove it",
        "kudu": "inspect and administer a running Kudu cluster, as Kudu's own CLI does",
    },
    "store": {
        "ingest": "append the runs of a store to a lake",
        "lake": "maintain a lake: compact, vacuum, check, export",
        "export": "write a stored history as Jepsen EDN",
        "import": "turn a Jepsen history in EDN into a run that can be checked",
    },
    "machine": {
        "init": "write harness.toml: defaults of this folder, or a system from a Compose file",
        "list": "list targets, workloads, nemeses, bugs, checkers and environments",
        "doctor": "show what works on this machine and how to fix the rest",
        "clean": "remove what dead runs left behind",
        "image": "build the Docker image of the nodes",
        "fetch": "download the programs of a real target",
        "completion": "print the completion script of a shell",
        "help": "show this help, or the help of a verb",
    },
}
VERBS: Final[dict[str, str]] = {
    verb: text for verbs in GROUPED.values() for verb, text in verbs.items()
}
# The modules of verbs in subfolders. Any other verb is in `harness.cli.VERB_verb`.
_MODULES: Final[dict[str, str]] = {
    "run": "run.verb",
    "check-determinism": "run.check_determinism_verb",
    "soak": "soak.verb",
    "shrink": "shrink.verb",
    "check": "check.verb",
    "import": "check.import_verb",
    "export": "check.export_verb",
    "up": "up.verb",
    "down": "up.down_verb",
    "break": "up.break_verb",
    "heal": "up.heal_verb",
    "status": "up.status_verb",
}

EPILOG: Final = """examples:
  harness run --nemesis partition-leader
  harness run --env sim --nemesis kill-leader,pause-leader --seed 7
  harness soak --env sim --seeds 1..200 --nemesis partition-leader
  harness check store/ddl-none/latest
  harness help run

exit codes: 0 valid or permitted, 1 invalid, 2 unknown, 254 usage, 255 crash"""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError`, with a suggestion, for wrong arguments.

    An empty argument is refused: it usually comes from an unset variable in a shell command, and
    would silently change the test. Flags cannot be abbreviated. Line breaks in the
    description and the epilog are kept.
    """

    def __init__(
        self, *, epilog: str | None = None, allow_abbrev: bool = False, **named: Any
    ) -> None:
        layout = argparse.HelpFormatter if epilog is None else argparse.RawDescriptionHelpFormatter
        named.setdefault("formatter_class", layout)
        super().__init__(epilog=epilog, allow_abbrev=allow_abbrev, **named)
        self.elsewhere: Callable[[str], str | None] = lambda _: None
        """Maps an unknown flag to a hint about the plug-ins that have this flag, or to `None`."""
        self._first: frozenset[str] | None = None

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse the arguments. Inside `captured_parser`, raise `_Captured` with this parser."""
        if _capturing:
            raise _Captured(self)
        return super().parse_args(args, namespace)

    def show_first(self, *flags: str) -> None:
        """Make `--help` show only these options; `--help-all` then shows every option."""
        self._first = frozenset(flags)
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option")

    def format_help(self, *, every: bool = False) -> str:
        """Return the help text; without `every`, only the options that `show_first` chose."""
        if self._first is None or every:
            return super().format_help()
        hidden = {
            action: action.help
            for action in self._actions
            if action.option_strings and self._first.isdisjoint(action.option_strings)
        }
        for action in hidden:
            action.help = argparse.SUPPRESS
        try:
            shown = super().format_help()
        finally:
            for action, text in hidden.items():
                action.help = text
        count = sum(text != argparse.SUPPRESS for text in hidden.values())
        return f"{shown}\n{counted(count, 'more option')}: {self.prog} --help-all\n"

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if "" in arg_strings:
            name = "/".join(action.option_strings) or action.metavar or action.dest
            raise UsageError(
                f"{name} is ''; give a value, or leave the option out (is a "
                "variable of your shell not set?)"
            )
        return super()._get_values(action, arg_strings)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.type in {int, float}:
            rule = "a whole number" if action.type is int else "a number"
            try:
                return action.type(arg_string)
            except ValueError:
                raise UsageError(
                    f"{_name_of(action)} is {arg_string!r}; it must be {rule}"
                ) from None
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise UsageError(
                f"{_name_of(action)} is {str(value)!r}; {choices_near(str(value), choices)} "
                f"(see `{self.prog} --help`)"
            )

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`. Argparse would exit with 2, which here means *unknown*."""
        raise UsageError(f"{message}{self._suggestion(message)}; see `{self.prog} --help`")

    def _suggestion(self, message: str) -> str:
        prefix = "unrecognized arguments: "
        if not message.startswith(prefix):
            return ""
        given = message.removeprefix(prefix).split()[0].split("=")[0]
        if not given.startswith("--"):
            return ""
        if (owner := self.elsewhere(given)) is not None:
            return f"; {owner}"
        flags = [flag for action in self._actions for flag in action.option_strings]
        near = choices_near(given, flags)
        return f"; {near}" if near.startswith("did") else ""


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        if isinstance(parser, Parser):
            sys.stdout.write(parser.format_help(every=True))
        parser.exit()


class _Version(argparse.Action):
    """Print the versions of the harness and of Python, and whether the native core is installed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        spec = importlib.util.find_spec("checkers")
        places = () if spec is None else spec.submodule_search_locations or ()
        native = any(next(Path(place).glob("_native.*"), None) for place in places)
        sys.stdout.write(
            f"harness {__version__} (Python {platform.python_version()}, "
            f"native core: {'yes' if native else 'no'})\n"
        )
        parser.exit()


class _Captured(Exception):  # noqa: N818 - not an error
    """Carries a verb's parser out of the verb's `main`, to `captured_parser`."""

    def __init__(self, parser: Parser) -> None:
        super().__init__()
        self.parser = parser


_capturing: list[bool] = []


def captured_parser(verb: str) -> Parser | None:
    """Return the parser of a built-in verb, without running the verb; `None` if it has no parser.

    A verb of another package also gives `None`, because its `main` might start its work.
    """
    if verb not in VERBS:
        return None
    _capturing.append(True)
    try:
        verb_module(verb).main([])
    except _Captured as captured:
        return captured.parser
    except UsageError:
        return None
    finally:
        _capturing.pop()
    return None


def _name_of(action: argparse.Action) -> str:
    if action.option_strings:
        return action.option_strings[-1]
    metavar = action.metavar if isinstance(action.metavar, str) else None
    return metavar or action.dest.replace("_", " ")


def check_counts(parsed: argparse.Namespace, **most: int) -> None:
    """Raise `UsageError` unless each option named in `most` is between 1 and its maximum."""
    for name, maximum in most.items():
        value = getattr(parsed, name)
        if not 1 <= value <= maximum:
            raise UsageError(f"--{name} is {value}; it must be in 1 .. {maximum}")


def add_place(parser: Parser) -> None:
    """Add the options `--name` and `--store`, which choose the folder of a run."""
    parser.add_argument(
        "--name", metavar="NAME", help="folder below the store (default: WORKLOAD-NEMESIS)"
    )
    add_store(parser)


def add_store(parser: Parser) -> None:
    """Give `parser` the option `--store`."""
    parser.add_argument(
        "--store",
        type=Path,
        default=Path("store"),
        metavar="DIR",
        help="folder of all runs (default: store)",
    )


def add_verbose(parser: argparse._ActionsContainer) -> None:
    """Give `parser` the option `--verbose`."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print every detail")


def verb_module(verb: str) -> Verb:
    """Import the module of a verb, which is built in or a plug-in."""
    if _is_module(verb):
        return cast("Verb", importlib.import_module(_module_name(verb)))
    return load_verb(verb)


def _is_module(verb: str) -> bool:
    return verb in VERBS and importlib.util.find_spec(_module_name(verb)) is not None


def _module_name(verb: str) -> str:
    return f"harness.cli.{_MODULES.get(verb, verb.replace('-', '_') + '_verb')}"


def known_verbs() -> dict[str, str]:
    """Map every verb to a one-line description: built-in verbs first, then plug-ins."""
    foreign: list[str] = []
    for name in plugin_names("verbs"):
        if _is_module(name):
            foreign += qualified_names("verbs", name)
        elif name not in VERBS:
            foreign.append(name)
    return {**VERBS, **{name: _described(name) for name in foreign}}


def _described(verb: str) -> str:
    """Return the one-line description of another package's verb, without importing its module."""
    module = verb_module_name(verb)
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    places = [] if spec is None else [Path(each) for each in spec.submodule_search_locations or ()]
    files = [place.joinpath(*rest, "__init__.py") for place in places]
    files += [place.joinpath(*rest).with_suffix(".py") for place in places if rest]
    if spec is not None and spec.origin is not None and not rest:
        files.append(Path(spec.origin))
    try:
        source = next(file for file in files if file.is_file()).read_text()
        text = ast.get_docstring(ast.parse(source)) or ""
    except (StopIteration, OSError, SyntaxError, ValueError):
        text = ""
    line = text.partition("\n")[0].removeprefix(f"`harness {verb}`:").strip().rstrip(".")
    return line or "(from an installed package)"


def build_parser() -> argparse.ArgumentParser:
    """Make the parser for `harness --help`, and for a command line that has no verb first."""
    others = {name: text for name, text in known_verbs().items() if name not in VERBS}
    groups = {**GROUPED, "installed packages": others} if others else GROUPED
    verbs = "\n\n".join(
        "\n".join([f"{group}:", *(f"  {name:18} {text}" for name, text in members.items())])
        for group, members in groups.items()
    )
    parser = Parser(
        prog="harness",
        usage="harness VERB [OPTION ...]",
        description=f"Chaos testing for replicated catalogs.\n\n{verbs}",
        epilog=EPILOG,
        allow_abbrev=True,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.add_argument("verb", nargs="?", help=argparse.SUPPRESS)
    return parser
