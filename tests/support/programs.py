"""Programs that a test runs to their end."""

import os
import subprocess
import sys


def run_program(*words, cwd=None, timeout_s=600, **variables):
    """How a program ended and what it said, with these environment variables besides ours."""
    return subprocess.run(
        list(map(str, words)), cwd=cwd, env={**os.environ, **variables},
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip


def python(code, *words, **options):
    """What an interpreter of its own writes that runs `code` and succeeds."""
    done = run_program(sys.executable, "-c", code, *words, **options)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    return done.stdout
