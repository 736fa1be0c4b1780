"""Every bench can be imported; no other test would notice a broken import."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "bench").rglob("*.py")
)
OURS = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {"bench"}


@pytest.mark.parametrize("module", MODULES)
def test_a_bench_imports(module):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OURS:
            raise
        pytest.skip(f"needs the package {error.name}")
