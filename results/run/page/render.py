"""Renders a run's page as one self-contained HTML file, in which no text of the run can execute.

Three measures protect the browser from texts of a run. First, the texts are escaped HTML, or JSON
in which no character can end the script element. Second, the page's code inserts the texts as text,
never as HTML. Third, a content security policy allows only the page's own script and style, which
it identifies by hashes.

Large data is compressed (deflate). The head of the page must be readable without scripts, so it is
HTML.
"""

from __future__ import annotations

import base64
import html
import zlib
from importlib import resources
from typing import Any, Final
from urllib.parse import quote

import msgspec

from harness.support.html_template import filled, policy_hash, script_safe

DEFLATE_FROM_BYTES: Final = 200_000
DEFLATE_LEVEL: Final = 5
SCRIPTS: Final = (
    "data.js",
    "view.js",
    "filter.js",
    "paint.js",
    "facts.js",
    "ops.js",
    "plots.js",
    "tables.js",
    "minimap.js",
    "detail.js",
    "picture.js",
    "words.js",
    "main.js",
)
"""The page's scripts, in the order of concatenation."""


def render(data: dict[str, Any], *, deflate_from: int = DEFLATE_FROM_BYTES) -> str:
    """Render the page of a run as HTML."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{script}}})();\n'
    style = _asset("page.css")
    encoded = msgspec.json.encode(data)
    if len(encoded) >= deflate_from:
        squeeze = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, -15)
        packed = squeeze.compress(encoded) + squeeze.flush()
        kind, content = "deflate-raw", base64.b64encode(packed).decode()
    else:
        kind, content = "json", script_safe(encoded.decode())
    policy = (
        f"default-src 'none'; script-src '{policy_hash(script)}'; "
        f"style-src '{policy_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    fillings = {
        "POLICY": html.escape(policy, quote=True),
        "STYLE": style,
        "TAB": html.escape(data["tab"]),
        "VERDICT": data["verdict"],
        "HEADLINE": html.escape(data["headline"]),
        "RUN": html.escape(data["title"]),
        "ABOUT": html.escape(data["about"]),
        "NUMBERS": html.escape(data["numbers"]),
        "NOTES": "".join(f"<p>{html.escape(_sentence(note))}</p>" for note in data["notes"]),
        "NEXT": _next(data),
        "TEXT": html.escape(_text(data)),
        "KIND": kind,
        "DATA": content,
        "SCRIPT": script,
    }
    return filled(_asset("page.html"), fillings)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1:] in '.!?' else '.'}"


def _next(data: dict[str, Any]) -> str:
    judged = not data["replay"].startswith("harness check ")
    items = [("replay", "Replay" if judged else "Judge it", data["replay"])]
    if data["clean"] is not None:
        items.append(("clean", data["clean"]["words"], data["clean"]["command"]))
    if data["stop"] is not None:
        items.append(("stop", data["stop"]["words"], data["stop"]["command"]))
    parts = [
        f'<li class="replay"><span>{html.escape(words)}</span> '
        f'<code id="{name}">{html.escape(command)}</code> '
        f'<button type="button" data-copy="{name}">Copy</button></li>'
        for name, words, command in items
        if command
    ]
    if data["log"] is not None:
        path = quote(data["log"]["path"])
        words = html.escape(data["log"]["words"])
        parts.append(f'<li><a id="log-link" href="./{path}">{words}</a></li>')
    parts += [
        f'<li><a class="related" href="{html.escape(quote(address))}">{html.escape(words)}</a></li>'
        for words, address in data["related"]
    ]
    parts += [
        f"<li><b>{html.escape(name)}</b>: {html.escape(meaning)} "
        f'<span class="soft">({html.escape(place)})</span></li>'
        for name, meaning, place in data["meanings"]
    ]
    if data["issue"]:
        parts.append(
            '<li class="issue"><button type="button" data-copy="issue">'
            "Copy as Markdown for an issue</button> "
            "<details><summary>Show it</summary>"
            f'<pre id="issue">{html.escape(data["issue"])}</pre></details></li>'
        )
    return "".join(parts)


def _text(data: dict[str, Any]) -> str:
    lines = []
    for row in data["checkers"]:
        lines.append(f"{row['name']}: {row['verdict']}: {row['reason']}")
        lines += [f"    {line}" for line in row["sentences"]]
    return "\n".join(lines)


def _asset(name: str) -> str:
    return (resources.files("results.run.page") / "assets" / name).read_text("utf-8")
