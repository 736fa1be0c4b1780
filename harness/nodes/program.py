"""Python programs as nodes, declared by commands such as `python:app:main --port {port:8080}`.

The first word names a module and a callable without arguments, which may be a coroutine function.
The other words become `sys.argv`. Modules are looked up in the folders of the node's PYTHONPATH,
and then where the harness's own modules are. The program is an ordinary asyncio program that does
not know the harness. The simulation runs it on simulated transports, files and clocks. Processes
run it unchanged, started by the source in `_LAUNCHER`.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from harness.cluster import NodeSpec
from harness.errors import UsageError

PREFIX: Final = "python:"
_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_LAUNCHER: Final = """
import asyncio, importlib, inspect, operator, sys
module, function = sys.argv.pop(1), sys.argv.pop(1)
sys.argv[0] = module
main = operator.attrgetter(function)(importlib.import_module(module))
result = main()
if inspect.iscoroutine(result):
    result = asyncio.run(result)
sys.exit(result if isinstance(result, int) else None)
"""


class Program(NamedTuple):
    """A Python program: its module, its callable, and its arguments."""

    module: str
    function: str
    arguments: tuple[str, ...]


def is_program(spec: NodeSpec) -> bool:
    """Whether the node is a Python program, which the simulation can run."""
    return spec.entry is None and bool(spec.command) and spec.command[0].startswith(PREFIX)


def program_of(spec: NodeSpec) -> Program:
    """Return the program in a node's command; raises `UsageError` for a malformed first word."""
    module, _, function = spec.command[0].removeprefix(PREFIX).partition(":")
    if not _NAME.fullmatch(module) or not _NAME.fullmatch(function):
        raise UsageError(
            f"node {spec.name!r} has the command {spec.command[0]!r}; a Python program is written "
            "'python:MODULE:CALLABLE', such as 'python:app:main' or 'python:shop.server:run'"
        )
    return Program(module, function, spec.command[1:])


def import_folders(spec: NodeSpec) -> tuple[str, ...]:
    """Return the folders of the node's PYTHONPATH. Its modules are searched there first."""
    return tuple(filter(None, spec.environment.get("PYTHONPATH", "").split(os.pathsep)))


def real_command(spec: NodeSpec, interpreter: str) -> tuple[str, ...]:
    """Return the command line that runs the node's program in a normal Python interpreter."""
    program = program_of(spec)
    launch = (interpreter, "-P", "-c", _LAUNCHER, program.module, program.function)
    return (*launch, *program.arguments)
