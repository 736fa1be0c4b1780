"""Tools that some tests need: where one is missing, its tests skip with the reason, unless CI
demands it (HARNESS_REQUIRE_SPARK=1, HARNESS_REQUIRE_BROWSER=1); then they fail. Which tools a test
needs, its marks say.
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess

from tests.browser_support import find_chromium

JAVA_VERSIONS = {17, 21}
"""What Spark 4 runs on (its docs, "Downloading")."""


def java_version(text):
    """The major version in what `java -version` prints, or `None`."""
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else None


@functools.cache
def missing_spark():
    """Why Spark cannot be started here, or `None`."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        return "there is no java; install openjdk-17-jre-headless"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{java} does not start: {error}"
    version = java_version(told.stderr)
    if version not in JAVA_VERSIONS:
        return f"{java} is Java {version}; Spark 4 needs {' or '.join(map(str, JAVA_VERSIONS))}"
    return None


@functools.cache
def missing_browser():
    """Why no page can be opened here, or `None`."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    return None if find_chromium() else "there is no chromium; apt-get install chromium"


NEEDS = {
    "spark": ("HARNESS_REQUIRE_SPARK", missing_spark),
    "browser": ("HARNESS_REQUIRE_BROWSER", missing_browser),
}


def refusal(mark, environ):
    """What is missing for a test with this mark, and whether it must be there; `None` if not."""
    variable, look = NEEDS[mark]
    reason = look()
    if reason is None:
        return None
    demanded = environ.get(variable) == "1"
    return demanded, f"{variable}=1, but {reason}" if demanded else reason
