"""Colours and tables, drawn by rich. Lines wrap only on a terminal, at its width.

`NO_COLOR` and `TERM=dumb` switch colours off. `FORCE_COLOR` switches them on even without a
terminal. Text from other sources is escaped (`harmless`), and never parsed as rich's markup. Rich
is imported only when something is drawn.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

VERDICT_STYLES: Final[Mapping[str, str]] = {
    "valid": "green",
    "permitted": "cyan",
    "invalid": "bold red",
    "unknown": "yellow",
    "crash": "bold magenta",
    "known": "cyan",
}
HEADLINE_STYLES: Final[Mapping[str, str]] = {
    verdict: f"bold {style.removeprefix('bold ')}" for verdict, style in VERDICT_STYLES.items()
}
"""The styles of the line with the overall verdict."""
BAR_WIDTH: Final = 24
WIDTH_DEFAULT: Final = 80
WIDTH_PIPED: Final = 1_000_000
"""The width of a stream that is not a terminal: nothing wraps."""
# Characters that control a terminal: C0 except line feed and tab, DEL, C1, and the Unicode line
# separators.
_CONTROLS: Final = {
    code: f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
    if chr(code) not in "\n\t"
}


def harmless(text: str) -> str:
    """Escape the control characters in `text`, which may quote file names, values or errors.

    Lone surrogates (undecodable bytes of file names) are escaped as well.
    """
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal that can redraw a line."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def width_of(stream: TextIO) -> int:
    """Return the current width of a terminal in columns; `WIDTH_DEFAULT` if it is unknown."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return WIDTH_DEFAULT
    return columns or WIDTH_DEFAULT


def console_on(stream: TextIO, *, to: TextIO | None = None) -> Console:
    """Make a rich console with the settings of `stream`. It writes to `to`, or else to `stream`."""
    from rich.console import Console

    terminal = is_terminal(stream)
    wanted = terminal or bool(os.environ.get("FORCE_COLOR"))
    coloured = wanted and not os.environ.get("NO_COLOR")
    return Console(
        file=to or stream,
        force_terminal=wanted,
        force_jupyter=False,
        color_system="auto" if coloured else None,
        width=width_of(stream) if terminal else WIDTH_PIPED,
        markup=False,
        emoji=False,
        highlight=False,
    )


def drawn(part: RenderableType, stream: TextIO) -> str:
    """Render `part` as text with the settings of `stream`, without spaces at the ends of lines."""
    into = io.StringIO()
    console_on(stream, to=into).print(part, soft_wrap=not _wraps(part))
    return _without_padding(into.getvalue())


def plain(parts: Sequence[RenderableType]) -> list[str]:
    """Render `parts` as lines without colours, for a stream that is not a terminal."""
    lines: list[str] = []
    for part in parts:
        text = part if isinstance(part, str) else _drawn_plainly(part)
        lines += text.split("\n")
    return lines


def _drawn_plainly(part: RenderableType) -> str:
    from rich.console import Console

    into = io.StringIO()
    Console(file=into, color_system=None, width=WIDTH_PIPED, force_terminal=False).print(part)
    return _without_padding(into.getvalue())


def _without_padding(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.removesuffix("\n").split("\n"))


def _wraps(part: RenderableType) -> bool:
    """Whether long lines wrap. Plain text does not wrap, because users copy commands from it."""
    from rich.text import Text

    return not isinstance(part, Text)


def styled(text: str, style: str = "") -> Text:
    """Return text in a rich style; markup in the text has no effect."""
    from rich.text import Text

    return Text(harmless(text).expandtabs(4), style)


def joined(*parts: str | Text) -> Text:
    """Join the parts. Each part keeps its own style."""
    from rich.text import Text

    return Text.assemble(*(styled(part) if isinstance(part, str) else part for part in parts))


def indented(text: str, columns: int = 2) -> Padding:
    """Indent text by `columns`. If the text wraps, all its lines are indented."""
    from rich.padding import Padding

    return Padding(styled(text), (0, 0, 0, columns), expand=False)


def table(
    rows: Sequence[Sequence[str | Text]],
    *,
    head: Sequence[str] = (),
    indent: int = 0,
) -> Table:
    """Make a table with columns as narrow as possible; the last takes the rest of the line."""
    from rich.table import Table

    columns = max((len(row) for row in rows), default=len(head))
    table = Table(box=None, show_header=bool(head), pad_edge=False, padding=(0, 2, 0, 0))
    table.header_style = "bold"
    if indent:
        table.add_column(width=indent - 2)
    for number in range(columns):
        name = styled(head[number]) if head else ""
        table.add_column(name, no_wrap=number < columns - 1, overflow="fold")
    for row in rows:
        cells = [styled(cell) if isinstance(cell, str) else cell for cell in row]
        table.add_row(*[""] * bool(indent), *cells)
    return table


def bar(done: float, total: float, text: Text) -> Table:
    """Make a progress bar that shows `done` of `total`, followed by `text`."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=BAR_WIDTH)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_row(ProgressBar(total=total or 1, completed=done, width=BAR_WIDTH), text)
    return grid
