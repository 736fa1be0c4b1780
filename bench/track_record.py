"""The README's track record, from the targets' ledgers: what was found, and how to find it again.

python -m bench.track_record            print the table
python -m bench.track_record --write    put it into README.md
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Final

from bench.ledgers import LEDGERS, found_switches, words_of

README: Final = Path(__file__).parent.parent / "README.md"
HEADER: Final = "| bug | what is wrong | said by | find it with |\n|---|---|---|---|\n"
TABLE: Final = re.compile(r"\| bug \| what is wrong \|.*?(?=\n\n)", re.DOTALL)


def command(bug: Any) -> str:
    """The command that finds it from any seed on."""
    return f"harness soak --env sim {words_of(bug)} --seeds 1..100 --stop-after 1"


def table() -> str:
    """One line for each switch that is found."""
    rows = [
        f"| `{bug.id}` ({bug.value.until}) | {bug.value.title} | `{bug.value.find.checker}`, "
        f"seed {bug.value.find.seed} | `{command(bug)}` |"
        for target in LEDGERS
        for bug in found_switches(target)
    ]
    return HEADER + "\n".join(rows)


def main() -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    if not parser.parse_args().write:
        print(table())
        return
    text = README.read_text()
    README.write_text(TABLE.sub(lambda _: table(), text, count=1))


if __name__ == "__main__":
    main()
