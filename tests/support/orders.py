"""An oracle of linearizability that tries every order."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

Item = tuple[float, float, Any]


def has_order(todo: list[Item], state: Any, after: Callable[[Any, Any], Iterable[Any]]) -> bool:
    """Whether some order that respects real time is legal (Wing and Gong's algorithm).

    Items are (call, end, what). An item without an answer has an infinite end and may be left out.
    `after(state, what)` returns the possible next states, none if the answer is wrong.
    """
    if all(end == inf for _, end, _ in todo):
        return True
    first = min(end for _, end, _ in todo)
    for place, (call, _, what) in enumerate(todo):
        if call <= first:
            rest = todo[:place] + todo[place + 1 :]
            if any(has_order(rest, then, after) for then in after(state, what)):
                return True
    return False
