"""The lane with the failure rate on the page of a run, in a real browser."""

from tests.results.run.page.runs import show, small_run, stale_read, write_run
from tests.results.why.test_answer import answer
from tests.support.browser import BROWSER_MARKS

pytestmark = BROWSER_MARKS

DOTS = """async () => {
  const { view, panels, redraw } = harnessPage;
  view.fit();
  redraw();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const lanes = panels.find((panel) => panel.canvas && panel.canvas.id === "lanes");
  const words = new Set();
  for (let x = 100; x < view.width; x += 2) for (let y = 0; y < 120; y += 10) {
    const thing = lanes.hit(x, y);
    if (thing && thing.lines[0].includes("runs fail")) words.add(thing.lines[0]);
  }
  return [...words];
}"""


def test_each_point_of_the_rate_has_a_tip(browser_page, tmp_path):
    history = small_run()
    folder = write_run(tmp_path, history, [stale_read(history)])
    why = answer(digest=history.digest())
    why.save(folder)
    show(browser_page, folder)
    tips = browser_page.evaluate(DOTS)
    expected = {
        f"{point.count.failed} of {point.count.runs} runs fail in the same way"
        for point in why.points
    }
    assert set(tips) == expected
