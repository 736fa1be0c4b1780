"""Generate the page of the bugs that the harness finds, from the targets' ledgers.

python -m bench.targets.track_record > docs/bugs.md
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from bench.targets.ledgers import LEDGERS, found_switches, words_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "bugs.md"
COLUMNS_MAX: Final = 96
SYSTEMS: Final = {"kudu": "Apache Kudu", "hive": "Hive Metastore"}
HEAD: Final = """\
# Bugs it finds

This page lists {number} defects that the harness finds. After reading it you can reproduce each of
them on your machine with one command. All but one are, or were, real defects of the original
systems; the bundled targets re-create them behind switches (`--bug ID`). Without its switch, the
same case is valid.

Each command stops at the first seed that shows the bug; the page names the seed to expect. The soak
then prints the command that replays that seed. `python -m bench.targets.mutants --bugs` runs this
page. [Hive Metastores](hive.md) says how often real metastores show some of these defects.

*Generated from the ledgers in `targets/kudu/bugs.py` and `targets/hive/bugs.py` by
`python -m bench.targets.track_record`; do not edit.*
"""


def command(bug: Any) -> str:
    """The command that finds a bug."""
    return f"harness soak --env sim {words_of(bug)} --seeds 1..100 --stop-after 1"


def wrapped(text: str) -> str:
    """Break a command into several lines, before options."""
    lines = [""]
    for part in re.split(r" (?=--)", text):
        if lines[-1] and len(lines[-1]) + len(part) > COLUMNS_MAX:
            lines.append("    " + part)
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return " \\\n".join(lines)


def section(bug: Any) -> str:
    """The section of the page about one bug."""
    row = bug.value
    return f"""\
### {bug.id}

{sentence(row.title)}

* **Cause:** {sentence(row.upstream)}
* **Status:** {row.until}
* **Found by:** `{row.find.checker}`, first at seed {row.find.seed}

```sh
{wrapped(command(bug))}
```
"""


def sentence(text: str) -> str:
    """Turn the words of a row into a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def page() -> str:
    """The whole page: one section for each switch that is found, grouped by system."""
    parts = [HEAD.format(number=sum(len(list(found_switches(target))) for target in LEDGERS))]
    for target in LEDGERS:
        bugs = list(found_switches(target))
        parts += [f"## {SYSTEMS[target]}: {len(bugs)} defects\n", *map(section, bugs)]
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
