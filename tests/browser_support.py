"""A real browser for tests of pages: headless Chromium, with every complaint of the page collected.

A folder's `conftest.py` takes what it needs, and marks its tests `browser`:

    from tests.browser_support import browser, browser_page  # noqa: F401

`browser_page` opens pages, and when the test is over fails it for any console error, any exception
nobody caught, any dialog and any request that left the machine. A test that wants such a thing says
so: `browser_page.expect("text")`. Where there is no Chromium the tests skip with the reason, unless
HARNESS_REQUIRE_BROWSER=1 says that there must be one, as in CI.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

__all__ = ["CHROMIUM", "BrowserPage", "browser", "browser_page", "find_chromium"]

CHROMIUM = "/usr/bin/chromium"
TIMEOUT_MS = 20_000
LOCAL = {"127.0.0.1", "localhost", "::1", "[::1]"}


def find_chromium() -> str | None:
    """Where Chromium is: HARNESS_CHROMIUM, the usual place, or the search path."""
    named = os.environ.get("HARNESS_CHROMIUM")
    if named:
        return named
    if Path(CHROMIUM).is_file():
        return CHROMIUM
    return shutil.which("chromium") or shutil.which("google-chrome")


def _missing(reason: str) -> None:
    if os.environ.get("HARNESS_REQUIRE_BROWSER") == "1":
        pytest.fail(f"HARNESS_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


class BrowserPage:
    """A page with its complaints. `page` is Playwright's, whose methods are also here."""

    def __init__(self, page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._expected: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("request", self._on_request)
        page.on("crash", lambda: self.problems.append("the page crashed"))

    def __getattr__(self, name):
        return getattr(self.page, name)

    def open(self, where: str | Path) -> None:
        """Go to an address or a file, and wait until it is loaded."""
        address = where.resolve().as_uri() if isinstance(where, Path) else where
        self.page.goto(address, wait_until="load")

    def follow(self, locator) -> None:
        """Click on what leads to another page, and wait until that is loaded: a click does not."""
        with self.page.expect_navigation(wait_until="load"):
            locator.click()

    def expect(self, text: str) -> None:
        """Complaints that contain `text` are part of the test."""
        self._expected.append(text)

    def unexpected(self) -> list[str]:
        """All complaints so far that nobody announced."""
        return [
            problem
            for problem in self.problems
            if not any(text in problem for text in self._expected)
        ]

    def _on_console(self, message) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"console {message.type}: {message.text}")

    def _on_dialog(self, dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request) -> None:
        self.requests.append(request.url)
        parts = urlsplit(request.url)
        if parts.scheme not in {"file", "data", "blob", "about"} and parts.hostname not in LOCAL:
            self.problems.append(f"request to the network: {request.url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """One Chromium for a module, not for the session: while it runs, Playwright's event loop counts
    as running in this thread, and tests elsewhere that call `asyncio.run` would fail.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        _missing("Playwright is not installed (it is in the dependency group dev)")
    path = find_chromium()
    if path is None:
        _missing(f"there is no Chromium at {CHROMIUM} or on the search path")
    with sync_playwright() as playwright:
        try:
            running = playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-gpu"]
            )
        except Error as error:
            _missing(f"{path} does not start: {str(error).splitlines()[0]}")
        yield running
        running.close()


@pytest.fixture
def browser_page(browser) -> Iterator[BrowserPage]:
    """A fresh page in a context of its own; its complaints fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(TIMEOUT_MS)
    page = BrowserPage(context.new_page())
    yield page
    context.close()
    assert page.unexpected() == []
