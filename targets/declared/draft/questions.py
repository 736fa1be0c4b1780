"""Questions about facts that a Compose file does not show. Each question has a default answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from harness.errors import UsageError, choices_near
from harness.plugins import Ask

__all__ = ["ASSUMED", "Questions", "Setting"]

ASSUMED: Final = "assumed"

_TRIES_MAX: Final = 3
_NONE: Final = "none"


class Setting(NamedTuple):
    """A value and its source. It is false if there is no value."""

    value: str
    why: str

    def __bool__(self) -> bool:
        return bool(self.value)


class Questions:
    """Asks questions, checks the answers, and records the defaults that were used."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.assumed: list[str] = []

    def text(
        self, question: str, usual: str, wrong: Callable[[str], str] = lambda _: ""
    ) -> Setting:
        """Ask until `wrong` accepts the answer. The default answer is marked as assumed.

        Raises `UsageError` after several wrong answers.
        """
        asked = question
        for _ in range(_TRIES_MAX):
            answer = self._ask(asked, usual).strip()
            complaint = wrong(answer)
            if not complaint:
                if answer != usual:
                    return Setting(answer, "")
                self.assumed.append(f"{question}: {usual or _NONE}")
                return Setting(usual, ASSUMED)
            asked = f"{answer!r}: {complaint}. {question}"
        raise UsageError(f"{asked}: {_TRIES_MAX} wrong answers; nothing was written")

    def one_of(self, question: str, usual: str, choices: Sequence[str]) -> Setting:
        """Return one of the choices. Raises `UsageError` like `text`."""
        return self.text(
            f"{question} ({', '.join(choices)})",
            usual,
            lambda answer: "" if answer in choices else choices_near(answer, choices),
        )

    def some_of(self, question: str, choices: Sequence[str]) -> list[str]:
        """Return some of the choices, by default none. Raises `UsageError` like `text`."""

        def names(answer: str) -> list[str]:
            return [name for name in answer.replace(",", " ").split() if name != _NONE]

        def wrong(answer: str) -> str:
            bad = next((name for name in names(answer) if name not in choices), None)
            return "" if bad is None else choices_near(bad, choices)

        answer = self.text(f"{question} ({', '.join(choices)} or {_NONE})", _NONE, wrong)
        return names(answer.value)
