"""Colours and tables by rich: as wide as a terminal, plain and as wide as they are elsewhere.

`NO_COLOR` and `TERM=dumb` switch colours off, `FORCE_COLOR` on where there is no terminal. Text
from elsewhere is escaped (`harmless`) and never parsed as rich's markup. Nothing here is
imported before something is drawn.
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
}
HEADLINE_STYLES: Final[Mapping[str, str]] = {
    verdict: f"bold {style.removeprefix('bold ')}" for verdict, style in VERDICT_STYLES.items()
}
"""Of the line that gives the verdict of all."""
BAR_WIDTH: Final = 24
WIDTH_DEFAULT: Final = 80
WIDTH_PIPED: Final = 1_000_000
"""Elsewhere than on a terminal nothing is wrapped."""
# What a terminal obeys: C0 except line ends and tabs, DEL, C1, and what ends a line elsewhere.
_CONTROLS: Final = {
    code: f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
    if chr(code) not in "\n\t"
}


def harmless(text: str) -> str:
    """`text` without control characters, which come from file names, values and errors of others.

    Half surrogate pairs are bytes of file names that are no text.
    """
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether output to `stream` can be redrawn."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


def width_of(stream: TextIO) -> int:
    """The width of a terminal now, since windows change."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return WIDTH_DEFAULT
    return columns or WIDTH_DEFAULT


def console_on(stream: TextIO, *, to: TextIO | None = None) -> Console:
    """A console that suits `stream`, and writes `to` it or elsewhere."""
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
    """`part` as it is written to `stream`, without spaces at the ends of lines."""
    into = io.StringIO()
    console_on(stream, to=into).print(part, soft_wrap=not _wraps(part))
    return _without_padding(into.getvalue())


def plain(parts: Sequence[RenderableType]) -> list[str]:
    """Lines of text without colours, for streams that are no terminal."""
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
    """Lines without spaces at their ends; only a line feed ends one."""
    return "\n".join(line.rstrip() for line in text.removesuffix("\n").split("\n"))


def _wraps(part: RenderableType) -> bool:
    """Whether a long line is broken: not in a text, whose commands and paths are copied."""
    from rich.text import Text

    return not isinstance(part, Text)


def styled(text: str, style: str = "") -> Text:
    """Text in a style of rich; nothing in it is markup."""
    from rich.text import Text

    return Text(harmless(text).expandtabs(4), style)


def joined(*parts: str | Text) -> Text:
    """One line of texts, each in its own style."""
    from rich.text import Text

    return Text.assemble(*(styled(part) if isinstance(part, str) else part for part in parts))


def indented(text: str, columns: int = 2) -> Padding:
    """Text that is wrapped below its own beginning, some columns to the right."""
    from rich.padding import Padding

    return Padding(styled(text), (0, 0, 0, columns), expand=False)


def table(
    rows: Sequence[Sequence[str | Text]],
    *,
    head: Sequence[str] = (),
    indent: int = 0,
    wraps: bool = True,
) -> Table:
    """Rows in columns of minimal width; the last column takes the rest of a line."""
    from rich.table import Table

    columns = max((len(row) for row in rows), default=len(head))
    table = Table(box=None, show_header=bool(head), pad_edge=False, padding=(0, 2, 0, 0))
    table.header_style = "bold"
    if indent:
        table.add_column(width=indent - 2)
    for number in range(columns):
        last = wraps and number == columns - 1
        name = styled(head[number]) if head else ""
        table.add_column(name, no_wrap=not last, overflow="fold")
    for row in rows:
        cells = [styled(cell) if isinstance(cell, str) else cell for cell in row]
        table.add_row(*[""] * bool(indent), *cells)
    return table


def bar(done: float, total: float, text: Text) -> Table:
    """A bar of progress, followed by the finished work."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=BAR_WIDTH)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_row(ProgressBar(total=total or 1, completed=done, width=BAR_WIDTH), text)
    return grid
