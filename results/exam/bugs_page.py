"""Makes the Markdown page of all bug switches that soaks can find.

Each target's ledger lists its bug switches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from harness.plugins import BugSwitch, Target
from harness.registry import load_plugin
from results.exam.rows import words_of

COLUMNS_MAX: Final = 96
HEAD: Final = """\
# Bugs it finds

This page lists {number} defects that the harness finds. After reading it you can reproduce each of
them on your machine with one command. All but one are, or were, real defects of the original
systems; the bundled targets re-create them behind switches (`--bug ID`). Without its switch, the
same case is valid.

Each command stops at the first seed that shows the bug; the page names the seed to expect. The soak
then prints the command that replays that seed. `harness exam --part switches` measures all of them
([The exam](exam.md)). [Hive Metastores](hive.md) says how often real metastores show some of these
defects.

*Generated from the ledgers of the targets by `harness exam --target {targets} --bugs-page FILE`; do
not edit.*
"""


def bugs_page(targets: Sequence[str]) -> str:
    """Return the whole page, with one section for each switch, grouped by target.

    Raises `UsageError` for targets that do not load.
    """
    sought: dict[str, list[BugSwitch]] = {}
    for name in targets:
        target: Target = load_plugin("targets", name)
        sought[name] = [switch for switch in target.switches() if switch.options is not None]
    return _page({name: switches for name, switches in sought.items() if switches})


def _page(found: Mapping[str, Sequence[BugSwitch]]) -> str:
    number = sum(len(switches) for switches in found.values())
    parts = [HEAD.format(number=number, targets=",".join(found))]
    for name, switches in found.items():
        parts.append(f"## Target `{name}`: {len(switches)} defects\n")
        parts += [_section(name, switch) for switch in switches]
    return "\n".join(parts)


def _section(target: str, switch: BugSwitch) -> str:
    command = f"harness soak --env sim {words_of(target, switch)} --seeds 1..100 --stop-after 1"
    facts = [
        f"* **Cause:** {_sentence(switch.cause)}" if switch.cause else "",
        f"* **Status:** {switch.status}" if switch.status else "",
        f"* **Found by:** `{switch.checker}`, first at seed {switch.seed}"
        if switch.checker
        else "",
    ]
    listed = "\n".join(fact for fact in facts if fact)
    return f"""\
### {switch.id}

{_sentence(switch.title)}

{listed}

```sh
{_wrapped(command)}
```
"""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _wrapped(text: str) -> str:
    lines = [""]
    for part in re.split(r" (?=--)", text):
        if lines[-1] and len(lines[-1]) + len(part) > COLUMNS_MAX:
            lines.append("    " + part)
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return " \\\n".join(lines)
