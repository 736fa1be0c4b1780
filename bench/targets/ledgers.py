"""The bundled targets' ledgers of bugs: switches, and the options of a soak that finds each bug."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness.case import Case
from harness.cli.parser import Parser
from harness.cli.run.case_options import DEFAULT_TARGET, case_from, parse_case_options
from harness.plan.random_case import ANY
from targets.hive.bugs import Bug as HiveBug
from targets.kudu.bugs import Bug as KuduBug

LEDGERS: Final[Mapping[str, type[enum.Enum]]] = {"kudu": KuduBug, "hive": HiveBug}


def found_switches(target: str) -> Iterator[Any]:
    """Yield the bugs of a target that a soak finds; the ledger has the reasons for the others."""
    return (bug for bug in LEDGERS[target] if bug.value.find is not None)


def words_of(bug: Any, *, switched_on: bool = True) -> str:
    """The options of `harness soak --env sim` that find a bug, with or without its switch."""
    (target,) = (name for name, ledger in LEDGERS.items() if isinstance(bug, ledger))
    assert bug.value.find is not None, f"nothing finds {bug.id}"
    words = [] if target == DEFAULT_TARGET else [f"--target {target}"]
    words += [f"--bug {bug.id}"] if switched_on else []
    return " ".join([*words, bug.value.find.words])


def case_of(bug: Any, seed: int = 1, *, switched_on: bool = True) -> Case:
    """The case that finds a bug according to its ledger, or the same case without the bug."""
    words = shlex.split(words_of(bug, switched_on=switched_on))
    return case_from(parse_case_options(Parser(prog="exam"), words, nemesis=ANY), seed)
