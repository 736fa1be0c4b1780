"""Runs tests of pages in headless Chromium, and collects all errors of a page.

`tests/results/conftest.py` provides the fixtures of this module. A test that uses them carries the
marks of all browser tests:

    pytestmark = BROWSER_MARKS

`browser_page` opens pages. At the end, it fails the test for any console error, uncaught exception,
dialog, or request to another machine, unless the test has announced it by
`browser_page.expect("text")`. Without Chromium the tests are skipped with the reason, or fail if
HARNESS_REQUIRE_BROWSER=1 is set, as in CI.

When the machine's network changes, for example because a container starts, Chromium drops all
waiting requests, even on loopback. A test that calls a server is therefore marked `@over_network`,
and restarts if a request was dropped.
"""

import asyncio
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

__all__ = [
    "BROWSER_MARKS",
    "BrowserPage",
    "browser",
    "browser_page",
    "browser_tab",
    "browser_test",
    "chromium",
    "find_chromium",
    "over_network",
]

BROWSER_MARKS = [pytest.mark.browser, pytest.mark.xdist_group("spark")]
"""The marks of all browser tests.

One worker runs them with one Chromium, and also the tests that share the reported store.
"""


def browser_test(test):
    """Mark a test that needs a browser, in a module whose other tests need none."""
    for mark in BROWSER_MARKS:
        test = mark(test)
    return test


CHROMIUMS = ("chromium-headless-shell", "chromium", "google-chrome")
"""Names of Chromium's program. The first one needs 0.6 times the CPU of the others."""
TIMEOUT_MS = 120_000
FLAGS = ("--disable-gpu", "--disable-software-rasterizer", "--in-process-gpu", "--no-zygote")
"""Options of Chromium. Drawing needs no separate process, because pages are small."""
VIEWPORT = {"width": 1280, "height": 800}
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
NETWORK_TRIES = 8
LOCAL = {"127.0.0.1", "localhost", "::1", "[::1]"}


def find_chromium() -> str | None:
    """Return Chromium's path, if found: HARNESS_CHROMIUM, or the first of `CHROMIUMS` in PATH."""
    path = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/bin"
    found = (shutil.which(name, path=path) for name in CHROMIUMS)
    return os.environ.get("HARNESS_CHROMIUM") or next(filter(None, found), None)


def _missing(reason: str) -> None:
    if os.environ.get("HARNESS_REQUIRE_BROWSER") == "1":
        pytest.fail(f"HARNESS_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


class BrowserPage:
    """A page with its errors; it also has the methods of Playwright's `page`."""

    dropped = 0
    """The number of requests that Chromium dropped, on all pages, when the network changed."""

    def __init__(self, page) -> None:
        self.page = page
        self.clean = True  # whether another test may use the page
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._expected: list[str] = []
        self._listeners = {
            "console": self._on_console,
            "pageerror": self._on_error,
            "dialog": self._on_dialog,
            "request": self._on_request,
            "requestfailed": self._on_failed_request,
            "crash": self._on_crash,
        }
        self._listen()

    def __getattr__(self, name):
        return getattr(self.page, name)

    def add_init_script(self, script: str) -> None:
        """Run `script` before any of the page's scripts; no other test gets this page."""
        self.clean = False
        self.page.add_init_script(script)

    def leave(self) -> None:
        """Empty the page, and ignore its further errors."""
        self.page.goto("about:blank")
        self.hear_no_more()

    def hear_no_more(self) -> None:
        """Stop collecting errors; the page's next user starts to collect again."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def begin_again(self) -> None:
        """Replace the page by a new one without errors, since the old one may still be loading."""
        self.clean = False
        context = self.page.context
        self.page.close()
        self.page = context.new_page()
        self._listen()
        self.problems.clear()

    def _listen(self) -> None:
        for event, listener in self._listeners.items():
            self.page.on(event, listener)

    def open(self, where: str | Path) -> None:
        """Go to an address or a file, and wait until it is loaded."""
        address = where.resolve().as_uri() if isinstance(where, Path) else where
        self.page.goto(address, wait_until="load")

    def follow(self, locator) -> None:
        """Click on a link, and wait until its page is loaded; a click alone does not wait."""
        with self.page.expect_navigation(wait_until="load"):
            locator.click()

    def expect(self, text: str) -> None:
        self._expected.append(text)

    def unexpected(self) -> list[str]:
        """Return all errors so far that the test did not expect."""
        return [
            problem
            for problem in self.problems
            if not any(text in problem for text in self._expected)
        ]

    def _on_failed_request(self, request) -> None:
        if request.failure == NETWORK_CHANGED:
            BrowserPage.dropped += 1

    def _on_console(self, message) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"console {message.type}: {message.text}")

    def _on_error(self, error) -> None:
        self.problems.append(f"uncaught: {error}")

    def _on_crash(self, _page) -> None:
        self.clean = False
        self.problems.append("the page crashed")

    def _on_dialog(self, dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request) -> None:
        self.requests.append(request.url)
        parts = urlsplit(request.url)
        if parts.scheme not in {"file", "data", "blob", "about"} and parts.hostname not in LOCAL:
            self.problems.append(f"request to the network: {request.url}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """Start one Chromium for all tests; a start costs as much as a dozen pages."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        _missing("Playwright is not installed (it is in the dependency group dev)")
    path = find_chromium()
    if path is None:
        _missing("there is no Chromium on the search path")
    with sync_playwright() as playwright:
        try:
            running = playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox", *FLAGS]
            )
        except Error as error:
            _missing(f"{path} does not start: {str(error).splitlines()[0]}")
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield running
        asyncio._set_running_loop(loop)
        running.close()


@pytest.fixture
def browser(chromium) -> Iterator[object]:
    """Provide the running Chromium for one test.

    While Playwright waits for a call, its event loop counts as running in this thread. It must not
    be running between browser tests, because other tests call `asyncio.run`.
    """
    asyncio._set_running_loop(chromium._loop)
    yield chromium
    asyncio._set_running_loop(None)


class Tab:
    """A page that tests use in turn, because creating a page is the main cost of a test.

    A test that changes the page permanently is its last user.
    """

    def __init__(self, chromium) -> None:
        self._chromium, self._page = chromium, None

    def lend(self) -> BrowserPage:
        """Return an empty page in the state of a new one."""
        if self._page is None:
            context = self._chromium.new_context(viewport=VIEWPORT)
            context.set_default_timeout(TIMEOUT_MS)
            self._page = context.new_page()
        self._page.set_viewport_size(VIEWPORT)
        self._page.emulate_media(color_scheme="light")
        return BrowserPage(self._page)

    def take_back(self, lent: BrowserPage) -> None:
        """Keep the page for the next test, or close it with its context."""
        if lent.clean and len(self._page.context.pages) == 1:
            lent.leave()
        else:
            self._page.context.close()
            self._page = None


@pytest.fixture(scope="session")
def browser_tab(chromium) -> Tab:
    return Tab(chromium)


@pytest.fixture
def browser_page(browser, browser_tab) -> Iterator[BrowserPage]:
    """Provide an empty page, whose errors fail the test."""
    page = browser_tab.lend()
    yield page
    browser_tab.take_back(page)
    assert page.unexpected() == [], page.problems


def over_network(test: Callable[..., None]) -> Callable[..., None]:
    """Decorate a test that only reads from a server: it runs again if a request was dropped."""

    @functools.wraps(test)
    def tried(**fixtures):
        pages = [each for each in fixtures.values() if isinstance(each, BrowserPage)]
        for left in reversed(range(NETWORK_TRIES)):
            before = BrowserPage.dropped
            try:
                test(**fixtures)
            except Exception as error:
                if left == 0 or (
                    BrowserPage.dropped == before and NETWORK_CHANGED not in str(error)
                ):
                    raise
            else:
                if BrowserPage.dropped == before:
                    return
            for page in pages:
                page.begin_again()
        raise AssertionError(f"the network changed during each of {NETWORK_TRIES} tries")

    return tried
