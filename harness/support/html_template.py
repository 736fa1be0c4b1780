"""Makes a self-contained HTML file from a template with placeholders `@@NAME@@`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping


def filled(template: str, fillings: Mapping[str, str]) -> str:
    """Return `template` with `fillings` in place of its placeholders.

    Inserted text is never searched for placeholders.
    """
    parts = template.split("@@")
    parts[1::2] = [fillings[name] for name in parts[1::2]]
    return "".join(parts)


def policy_hash(text: str) -> str:
    """Return the source expression of an inline style or script in a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def script_safe(text: str) -> str:
    """Return JSON `text` for a script element, escaped so that it cannot end the element."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
