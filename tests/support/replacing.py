"""Patches that replace a function by one that gets the original as its first argument."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

Patch = Callable[[pytest.MonkeyPatch], None]


def replace(patch: pytest.MonkeyPatch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by `around`, which gets the original as its first argument."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **options: Any) -> Any:
        return around(original, *args, **options)

    taken = inspect.signature(around)
    replaced.__signature__ = taken.replace(  # type: ignore[attr-defined]
        parameters=list(taken.parameters.values())[1:]
    )
    patch.setattr(owner, name, replaced)


def instead(owner: Any, name: str) -> Callable[[Callable[..., Any]], Patch]:
    """Turn a function into the patch that replaces `owner.name` by it."""

    def patching(function: Callable[..., Any]) -> Patch:
        @functools.wraps(function)
        def patched(patch: pytest.MonkeyPatch) -> None:
            replace(patch, owner, name, function)

        return patched

    return patching
