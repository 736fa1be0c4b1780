"""The page of a comparison is complete and escaped, and requests nothing from elsewhere."""

from harness.plugins import KnownDifference
from results.twin.page import render
from tests.results.twin.made import OK, run, twin
from tests.support.browser import browser_test


def made():
    def side(code):
        return lambda number: ("refused", code) if number % 4 == 0 else OK

    known = KnownDifference(
        name="codes", original="apache-kudu", rows=("message/create/A/B",), why="<b>why</b>"
    )
    left, right = (
        [run(side(code), seed=seed, fault_every_s=6) for seed in range(3)]
        for code in ("A/B", "<x>/C & D")
    )
    return twin(left, right, [known], case="kill")


def test_the_page_shows_the_rows_and_escapes_what_targets_say():
    page = render(made())
    assert "2 differences in" in page
    assert "1 not explained" in page
    assert "message/create/A/B" in page
    assert "&lt;x&gt;/C &amp; D" in page
    assert "&lt;b&gt;why&lt;/b&gt;" in page
    assert "<x>" not in page
    assert "Too rare" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_page_lists_rows_that_are_too_rare_apart_from_differences():
    once = [run(lambda number: ("failed", "X/Y") if number == 7 else OK)]
    page = render(twin([run(lambda _: OK)], once))
    assert "no difference shown" in page
    assert "chance explains 2 more" in page
    assert 'id="rare"' in page
    assert "message/create/X/Y" in page.partition('id="rare"')[2].partition("</section>")[0]
    assert 'id="one-sided"' not in page


@browser_test
def test_the_page_fits_wide_and_narrow_windows(browser_page, tmp_path):
    path = tmp_path / "twin.html"
    path.write_text(render(made()))
    browser_page.open(path)
    for width in (1280, 400):
        browser_page.set_viewport_size({"width": width, "height": 800})
        assert browser_page.evaluate("document.documentElement.scrollWidth") <= width
    assert browser_page.locator("#differences tbody tr").count() == 2
    assert browser_page.locator("#differences td.worse").count() == 1
