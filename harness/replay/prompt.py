"""The prompt of a replay: commands that inspect the stopped world, or continue it.

Commands come from a terminal or from a pipe. From a pipe they are echoed, so that the output of a
script reads like a session.
"""

from __future__ import annotations

import cmd
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TextIO

from harness.errors import HarnessError, UsageError, choices_near
from harness.exact import whole_number
from harness.replay import text
from harness.replay.debugger import debug
from harness.replay.moments import FORMS, STEPS_MAX, End, Order, Quit, Steps, parse_until
from harness.replay.view import NodeView, Stopped
from harness.replay.watch import Stop, Watch

_ALL: Final = 10_000


class Prompt(cmd.Cmd):
    """The prompt at the stops of one replay. Call `at` at each stop."""

    doc_header = "commands (help COMMAND explains one):"
    prompt = "(replay) "

    def __init__(
        self,
        look: Callable[[Watch, Stop], Stopped],
        write_page: Callable[[Stopped, Path], None],
        *,
        stdin: TextIO,
        stdout: TextIO,
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.is_interrupted = False
        """Ctrl-C ended the session"""
        self._terminal = stdin.isatty()
        self.use_rawinput = self._terminal
        self._look = look
        self._write_page = write_page
        self._state: Stopped | None = None
        self._order: Order = Quit()
        self._watch: Watch
        self._stop: Stop

    def at(self, watch: Watch, stop: Stop) -> Order:
        """Show the moment, carry out commands, and return where to stop next."""
        self._watch, self._stop, self._state = watch, stop, None
        self._say(watch.lines)
        self._say(text.moment_text(self.state))
        try:
            self.cmdloop()
        except KeyboardInterrupt:
            self._say([""])
            self.is_interrupted = True
            return Quit()
        return self._order

    @property
    def state(self) -> Stopped:
        """The state of the world at this stop. It is read only once."""
        if self._state is None:
            self._state = self._look(self._watch, self._stop)
        return self._state

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.stdout.write(f"{line}\n")
        self.stdout.flush()

    # --- hooks of `cmd.Cmd` ----------------------------------------------------------------------

    def precmd(self, line: str) -> str:
        if not self._terminal:
            self._say([line if line != "EOF" else ""])
        return line

    def emptyline(self) -> bool:
        """Do nothing: an empty line, entered by mistake, must not continue the world."""
        return False

    def onecmd(self, line: str) -> bool:
        try:
            return bool(super().onecmd(line))
        except HarnessError as error:
            self._say([f"{error}"])
            return False

    def default(self, line: str) -> None:
        names = [name.removeprefix("do_") for name in self.get_names() if name.startswith("do_")]
        verb = line.split(maxsplit=1)[0]
        raise UsageError(
            f"{verb!r} is not a command; {choices_near(verb, sorted({*names} - {'EOF'}))}"
        )

    def completenames(self, text: str, *ignored: object) -> list[str]:
        return [name for name in super().completenames(text, *ignored) if name != "EOF"]

    # --- commands that continue the world ------------------------------------------------------

    def do_step(self, arg: str) -> bool:
        """Step [NODE] [COUNT]: continue to the next event of the world, or of one node."""
        words = _words(arg)
        counts = [count for word in words if (count := whole_number(word)) is not None]
        nodes = [word for word in words if whole_number(word) is None]
        if len(counts) > 1 or len(nodes) > 1:
            raise UsageError(f"step {arg}: write step [NODE] [COUNT], such as step m2 10")
        count = counts[0] if counts else 1
        if not 1 <= count <= STEPS_MAX:
            raise UsageError(f"the count is {count}; it must be in 1 .. {STEPS_MAX}")
        node = nodes[0] if nodes else None
        if node is not None and node not in self._watch.deployment.machines:
            raise _no_node(node, list(self._watch.deployment.machines))
        return self._go(Steps(count, node))

    def do_until(self, arg: str) -> bool:
        until = parse_until(arg.strip())
        self._watch.check_ahead(until)
        return self._go(until)

    do_until.__doc__ = f"until MOMENT: continue to a moment: {FORMS}; events count from this stop."

    def do_continue(self, arg: str) -> bool:
        """continue: run to the end of the run."""
        del arg
        return self._go(End())

    def do_quit(self, arg: str) -> bool:
        """quit: end the replay here."""
        del arg
        return self._go(Quit())

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - the name that `cmd` looks for
        """(end of the input): end the replay here."""
        return self.do_quit(arg)

    def do_pdb(self, arg: str) -> bool:
        """Pdb [NODE]: open Python's debugger in the code of a node (default: the stop's node).

        `next` and `step` of the debugger let the world's time go on; its `continue` returns to
        this prompt, before the next event.
        """
        words = _words(arg)
        if len(words) > 1:
            raise UsageError(f"pdb {arg}: write pdb [NODE], such as pdb m2")
        debugger = debug(
            self._watch,
            self._stop,
            words[0] if words else None,
            stdin=self.stdin,
            stdout=self.stdout,
            stops_again=True,
        )
        if debugger.has_quit:
            return self._go(Quit())
        return debugger.goes_on and self._go(End())

    # --- commands that look --------------------------------------------------------------------

    def do_show(self, arg: str) -> None:
        """Show [NODE]: the whole state, or everything about one node."""
        words = _words(arg)
        if not words:
            self._say(text.whole_text(self.state))
        for name in words:
            self._say(text.node_text(self._node(name), full=True))

    def do_where(self, arg: str) -> None:
        """where: the moment, and the code that runs."""
        del arg
        self._say(text.moment_text(self.state))

    def do_messages(self, arg: str) -> None:
        """Messages [NODE]: messages in flight, held or unread; of all nodes, or from or to one."""
        words = _words(arg)
        if words:
            self._check_name(words[0])
        node = words[0] if words else None
        self._say(text.messages_text(self.state, node=node, most=_ALL))

    def do_timers(self, arg: str) -> None:
        """Timers [NODE]: the timers of all nodes, or of one, in the order in which they are due."""
        words = _words(arg)
        if words:
            self._check_name(words[0])
        self._say(text.timers_text(self.state, node=words[0] if words else None, most=_ALL))

    def do_faults(self, arg: str) -> None:
        """faults: the active faults, and the links that they break."""
        del arg
        self._say(text.faults_text(self.state))

    def do_operations(self, arg: str) -> None:
        """operations: the operations in flight, and the last recorded ops."""
        del arg
        self._say(text.operations_text(self.state))

    def do_page(self, arg: str) -> None:
        """Page FILE: write the state as an HTML page."""
        words = _words(arg)
        if len(words) != 1:
            raise UsageError(f"page {arg}: write page FILE, such as page stopped.html")
        self._write_page(self.state, Path(words[0]))
        self._say([words[0]])

    # --- helpers -------------------------------------------------------------------------------

    def _go(self, order: Order) -> bool:
        self._order = order
        return True

    def _node(self, name: str) -> NodeView:
        node = self.state.node(name)
        if node is None:
            raise _no_node(name, [each.name for each in self.state.nodes])
        return node

    def _check_name(self, name: str) -> None:
        names = list(self._watch.deployment.machines)
        if name not in names:
            raise _no_node(name, names)


def _words(arg: str) -> list[str]:
    try:
        return shlex.split(arg)
    except ValueError as error:
        raise UsageError(f"{arg!r}: {error}") from error


def _no_node(name: str, names: list[str]) -> UsageError:
    return UsageError(f"there is no node {name!r}; {choices_near(name, names)}")
