"""The ledgers of the bundled targets: their switches, and the words that find each of them."""

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
    """The rows that something finds; the others say why nothing does."""
    return (bug for bug in LEDGERS[target] if bug.value.find is not None)


def words_of(bug: Any, *, switched_on: bool = True) -> str:
    """Options of `harness soak --env sim`: the target, the switch, and what finds it."""
    (target,) = (name for name, ledger in LEDGERS.items() if isinstance(bug, ledger))
    assert bug.value.find is not None, f"nothing finds {bug.id}"
    words = [] if target == DEFAULT_TARGET else [f"--target {target}"]
    words += [f"--bug {bug.id}"] if switched_on else []
    return " ".join([*words, bug.value.find.words])


def case_of(bug: Any, seed: int = 1, *, switched_on: bool = True) -> Case:
    """The case by which the ledger says that it is found, or the control without the switch."""
    words = shlex.split(words_of(bug, switched_on=switched_on))
    return case_from(parse_case_options(Parser(prog="exam"), words, nemesis=ANY), seed)
