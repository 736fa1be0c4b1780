"""Texts read like a native engineer's: patterns of translated English, counted by package.

Docstrings, comments, messages and names of variables count; `words.json` has the remaining counts,
which may only shrink. Rewrite the sentence: name the actor, put the subject first, say one thing.
"""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("harness", "targets", "nemesis", "checkers", "workloads", "results")
LEFT = Path(__file__).with_name("words.json")  # {package: {pattern: places that are left}}
TEXTS = {
    "nobody": r"\b(?:no|some)body\b",
    "whoever": r"\bwho(?:m|se)?ever\b|\bwhatever\b",
    "what is": r"\bwhat (?:is|are|was|were|it|there|they) ",
    "those that": r"\bthose (?:that|of|which|whose|who)\b",
    "stands": r"\bstands?\b",
    "beside": r"\b(?:besides?|anew|nought)\b",
    "is told": r"\b(?:is|are|was|were|be) told\b",
    "so many": r"\bso (?:many|much|long)\b",
    "a X a Y": r"\b(?:an?|one) (?!(?:as|at|by|in|is|of|on|or|to) )[a-z]+ an? [a-z]+\b",
    "has not": r"\b(?:has|have) not\b(?! been)",
    "said": r"\bsaid\b",
}
RELATIVE = re.compile(r"(?:What|Which|Who|Whom|Where|How|Why|That|When|If|As)\b")
VARIABLES = {"found", "known", "given", "told", "own", "shown", "said", "one"}
COMMENT = re.compile(r"(?:^|  )# (.*)", re.MULTILINE)


def assigned(node):
    """Return the names that a statement or a comprehension binds."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension)):
        targets = [node.target]
    else:
        targets = []
    return [
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    ]


def headless(node):
    """Whether a docstring begins with a relative clause; `Whether ...` is for booleans."""
    first = (ast.get_docstring(node) or "").partition("\n")[0]
    returns = getattr(node, "returns", None)
    boolean = returns is None or "bool" in ast.unparse(returns)
    return bool(RELATIVE.match(first)) or (first.startswith("Whether") and not boolean)


def counted(package):
    counts = dict.fromkeys([*TEXTS, "first line", *VARIABLES], 0)
    for path in sorted((ROOT / package).rglob("*.py")):
        source = path.read_text()
        texts = COMMENT.findall(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(
                node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            ):
                counts["first line"] += headless(node)
            for name in assigned(node):
                if name in VARIABLES:
                    counts[name] += 1
        text = "\n".join(texts)
        for name, pattern in TEXTS.items():
            counts[name] += len(re.findall(pattern, text, re.IGNORECASE))
    return {name: count for name, count in sorted(counts.items()) if count}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_translated_english_only_shrinks(package):
    left = json.loads(LEFT.read_text())[package]
    counts = counted(package)
    grown = {name: count for name, count in counts.items() if count > left.get(name, 0)}
    assert grown == {}, "rewrite the new texts (CONTRIBUTING.md, Words)"
    assert counts == left, "fewer are left: write the new counts to tests/words.json"
