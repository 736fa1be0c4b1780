"""One HTML file that needs nothing else, from a template with `@@NAME@@` in it."""

from __future__ import annotations

from collections.abc import Mapping


def filled(template: str, fillings: Mapping[str, str]) -> str:
    """The template, filled in one pass: what is put in is never looked at again."""
    parts = template.split("@@")
    parts[1::2] = [fillings[name] for name in parts[1::2]]
    return "".join(parts)


def script_safe(text: str) -> str:
    """JSON that can stand in a script element: no character of it can end the element."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
