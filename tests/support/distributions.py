"""Third-party packages, installed for a test."""

import contextlib
import sys


@contextlib.contextmanager
def installed(folder, monkeypatch, name, module, points, metadata=""):
    """Install a distribution in `folder`: one module, NAME_plugins, and these entry points.

    `metadata` has further lines, such as `Requires-Dist: ...`.
    """
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{metadata}")
    (info / "entry_points.txt").write_text(points)
    (folder / f"{name}_plugins.py").write_text(module)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop(f"{name}_plugins", None)
