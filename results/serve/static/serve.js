// Keyboard control of lists, and the selection of two runs to compare. Every page also works
// without scripts.
"use strict";
(() => {
  const rows = [...document.querySelectorAll("tr[data-row]")];
  const form = document.getElementById("compare");
  const button = document.getElementById("compare-button");
  const ticks = form ? [...form.querySelectorAll("input[name=run]")] : [];
  let here = -1;

  function ticked() {
    return ticks.filter((tick) => tick.checked);
  }

  function told() {
    if (!button) return;
    const count = ticked().length;
    button.disabled = count !== 2;
    button.textContent = count === 2 ? "Compare the two selected runs" : `Compare (select two; ${count} selected)`;
  }

  // A comparison has two runs, so a third selection replaces the first.
  const order = [];
  for (const tick of ticks) {
    tick.addEventListener("change", () => {
      const place = order.indexOf(tick);
      if (place >= 0) order.splice(place, 1);
      if (tick.checked) order.push(tick);
      while (order.length > 2) order.shift().checked = false;
      told();
    });
  }
  for (const tick of ticked()) order.push(tick); // ticks that the browser restored
  told();

  function go(to) {
    if (!rows.length) return;
    if (here >= 0) rows[here].classList.remove("here");
    here = Math.max(0, Math.min(rows.length - 1, to));
    rows[here].classList.add("here");
    rows[here].scrollIntoView({ block: "nearest" });
    const link = rows[here].querySelector("a.open");
    if (link) link.focus({ preventScroll: true });
  }

  const pages = { r: "/", m: "/matrix", t: "/trends" };
  let prefix = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = event.target;
    const typing = at instanceof HTMLInputElement && at.type !== "checkbox";
    if (typing || at instanceof HTMLSelectElement || at instanceof HTMLTextAreaElement) {
      if (event.key === "Escape") at.blur();
      return;
    }
    const was = prefix;
    prefix = false;
    if (was && Object.hasOwn(pages, event.key)) {
      location.href = pages[event.key];
      return;
    }
    if (event.key === "g") prefix = true;
    else if (event.key === "j") go(here + 1);
    else if (event.key === "k") go(here < 0 ? 0 : here - 1);
    else if (event.key === "x" && here >= 0) {
      const tick = rows[here].querySelector("input[name=run]");
      if (tick) tick.click();
    } else if (event.key === "c" && form && ticked().length === 2) form.requestSubmit();
    else if (event.key === "/") {
      const search = document.getElementById("search");
      if (!search) return;
      event.preventDefault();
      search.focus();
      search.select();
    }
  });
})();
