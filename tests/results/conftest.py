"""The browser, for all who look at pages."""

from tests.support.browser import (  # noqa: F401 - fixtures
    browser,
    browser_page,
    browser_tab,
    chromium,
)
