"""Runs a program for one *life*: the time from one start of its node to the node's end.

A life imports its own copies of the program's modules, and calls the program's `main`. Like a
process, it ends when `main` returns or raises. After a kill, the objects of the old life have no
effect: its loop is dead, and its files, streams and transports do nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from harness.cluster import NodeSpec
from harness.env import NodeMain
from harness.environments.sim.machine import SimEnv
from harness.environments.sim.programs.asyncio_part import end_tasks
from harness.environments.sim.programs.blocking import run_blocking
from harness.environments.sim.programs.modules import Modules, find_module
from harness.environments.sim.programs.process import INTERRUPTED, Process
from harness.environments.sim.programs.substitutes import place_files, pretended, substitutes
from harness.errors import UsageError
from harness.nodes.program import import_folders, program_of


def program_main(spec: NodeSpec, specs: Mapping[str, NodeSpec]) -> NodeMain:
    """Return the coroutine function that runs a node whose command is a Python program.

    Raises `UsageError` if the program's module is not found.
    """
    program = program_of(spec)
    top = program.module.partition(".")[0]
    folders = import_folders(spec)
    if find_module(top, folders) is None:
        raise UsageError(
            f"node {spec.name!r} runs {spec.command[0]!r}, but there is no module {top!r}"
            + (f" in {' or '.join(folders)}" if folders else "")
            + "; install its package into the harness's environment, or add its folder to "
            "PYTHONPATH in the node's environment"
        )

    async def main(env: Any, _: dict[str, Any]) -> None:
        assert isinstance(env, SimEnv), "programs run only in the simulation"
        await Life(Process(env, spec, program, specs)).run()

    return main


class Life:
    """One execution of a program, with its own modules, from a start of its node to the end."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._loop = process.loop
        replaced: dict[str, Any] = {
            "open": process.files.open,
            "print": self._print,
            "input": _no_input,
            "breakpoint": _no_breakpoint,
        }
        self._loop.prepare(pretended(process))
        self._modules = Modules(
            substitutes(process), replaced, process.refuse, process.import_folders
        )

    async def run(self) -> None:
        """Import the program and call its main function; exit with the program's exit code."""
        process = self._process
        self._loop.mark_system()
        code: object = 0
        try:
            place_files(process)
            self._modules.load("sys")
            module = self._modules.load(process.program.module)
            function = operator.attrgetter(process.program.function)(module)
            if inspect.iscoroutinefunction(function):
                code = await self._run_coroutine(function())
            else:
                code = await run_blocking(lambda: self._call(function), process.interruption)
        except SystemExit as error:
            code = error.code
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            if self._loop.alive:
                process.finish()
        await asyncio.sleep(0)  # wait until the last blocking call is over
        process.exit(code)

    async def _run_coroutine(self, coroutine: Any) -> Any:
        self._loop.main = self._loop.create_task(coroutine, name="program")
        try:
            return await self._loop.main
        except asyncio.CancelledError:
            self._loop.check_interrupted()
            raise
        finally:
            if self._loop.alive:
                await end_tasks(self._loop)

    def _call(self, function: Callable[[], Any]) -> Any:
        result = function()
        if inspect.iscoroutine(result):
            return self._loop.run_until_complete(result)
        return result

    def _print(self, *values: Any, file: Any = None, **options: Any) -> None:
        where = self._modules.loaded["sys"].stdout if file is None else file
        print(*values, file=where, **options)


def _no_input(*_: Any) -> NoReturn:
    raise EOFError("a simulated program has no standard input")


def _no_breakpoint(*_: Any, **__: Any) -> None:
    """Ignore a breakpoint: `harness replay` stops simulated runs instead."""
