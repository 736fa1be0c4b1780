"""`harness completion`: prints a script that completes verbs and options in a shell.

`shtab` generates the script from the verbs' parsers, so completion starts no Python process. The
script knows the plug-ins that were installed when it was generated.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from harness.cli.output import say
from harness.cli.parser import Parser, captured_parser, known_verbs
from harness.registry import load_working, plugin_names
from harness.verdict.judge import model_names

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
_EPILOG: Final = """examples:
  harness completion bash > ~/.local/share/bash-completion/completions/harness
  harness completion zsh > ~/.zfunc/_harness
  harness completion fish > ~/.config/fish/completions/harness.fish"""


def main(arguments: Sequence[str]) -> int:
    """Print the completion script for the shell that is named in `arguments`."""
    parser = Parser(
        prog="harness completion",
        description="Print the completion script of a shell: verbs, options and the names of "
        "plug-ins. Generate it again after installing a plug-in.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=SHELLS, help="one of: " + ", ".join(SHELLS)
    )
    shell = parser.parse_args(list(arguments)).shell

    import shtab

    say(shtab.complete(_whole_parser(), shell))
    return 0


def _whole_parser() -> argparse.ArgumentParser:
    """Make one parser for all verbs, with the names of plug-ins as choices."""
    whole = argparse.ArgumentParser(prog="harness")
    verbs = whole.add_subparsers()
    names = {dest: sorted(names()) for dest, names in _NAMES.items()}
    for verb, text in known_verbs().items():
        made = verbs.add_parser(verb, help=text.replace("%", "%%"))
        parser = None if verb == "completion" else captured_parser(verb)
        if parser is None:
            continue
        for action in parser._actions:  # noqa: SLF001 - argparse has no public list of actions
            if action.option_strings and action.dest in names and action.nargs != 0:
                action.choices = names[action.dest]
        verbs.choices[verb] = parser
        parser.prog = made.prog
    return whole


def _bugs() -> list[str]:
    return [bug for _, target in load_working("targets") for bug in target.bugs]


_NAMES: Final[dict[str, Callable[[], Sequence[str]]]] = {
    "nemesis": lambda: ["any", *plugin_names("nemeses")],
    "target": lambda: plugin_names("targets"),
    "workload": lambda: plugin_names("workloads"),
    "env": lambda: ["auto", *plugin_names("environments")],
    "reporters": lambda: ["all", "default", "none", *plugin_names("reporters")],
    "model": lambda: model_names("model"),
    "elle": lambda: model_names("elle"),
    "bug": _bugs,
}
"""Map an option's `dest` to a function that lists the option's possible values."""
