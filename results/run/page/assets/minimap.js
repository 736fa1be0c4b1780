// Minimap: the whole run, always visible. Its window marks the part that the panels show; dragging
// the window moves the panels.

function minimapPanel(canvas, page) {
  const height = 46;
  const x = (time) => LEFT + ((time - view.begin) / (view.end - view.begin)) * (view.width - LEFT - RIGHT);
  const time = (px) => view.begin + ((px - LEFT) / (view.width - LEFT - RIGHT)) * (view.end - view.begin);
  const still = { canvas: document.createElement("canvas"), key: "" };
  const panel = new Panel(canvas, {
    height: () => height,
    draw(pen, width) {
      const key = `${width} ${canvas.width} ${page.filterCount} ${page.theme}`;
      if (still.key !== key) { still.key = key; paintStill(still.canvas, canvas, page, x, width, height); }
      pen.drawImage(still.canvas, 0, 0, width, height);
      const x0 = x(view.from), x1 = Math.max(x(view.to), x0 + 3);
      pen.globalAlpha = 0.5;
      pen.fillStyle = ink.paper;
      pen.fillRect(LEFT, 0, x0 - LEFT, height);
      pen.fillRect(x1, 0, width - RIGHT - x1, height);
      pen.globalAlpha = 1;
      pen.strokeStyle = ink.select;
      pen.lineWidth = 1.5;
      pen.strokeRect(x0, 1, x1 - x0, height - 2);
    },
  });
  panel.time = time;
  panel.x = x;
  return panel;
}

function paintStill(still, canvas, page, x, width, height) {
  still.width = canvas.width;
  still.height = canvas.height;
  const pen = still.getContext("2d");
  pen.scale(canvas.width / width, canvas.height / height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const { data } = page, buckets = Math.max(1, Math.floor((width - LEFT - RIGHT) / 3));
  const step = (view.end - view.begin) / buckets;
  for (const fault of data.faults) {
    if (!fault.targets.length) continue;
    pen.globalAlpha = 0.22;
    pen.fillStyle = nemesisColour(page, fault.nemesis);
    pen.fillRect(x(fault.start), 0, Math.max(1, x(fault.end === null ? data.end : fault.end) - x(fault.start)), height);
  }
  pen.globalAlpha = 1;
  const counts = rates(page, view.begin, view.end, step);
  let most = 1;
  for (let b = 0; b < buckets; b++) most = Math.max(most, counts[OK][b] + counts[FAIL][b] + counts[INFO][b]);
  for (let b = 0; b < buckets; b++) {
    let base = height - 3;
    for (const type of [OK, FAIL, INFO]) {
      const part = (counts[type][b] / most) * (height - 14);
      pen.fillStyle = ink.outcomes[type];
      pen.fillRect(x(view.begin + b * step), base - part, 2.4, part);
      base -= part;
    }
  }
  pen.fillStyle = ink.blame;
  const marks = [...page.focus.map((i) => page.ops.start[i]), ...page.focusFacts.map((fact) => fact[1])];
  for (const time of marks) pen.fillRect(x(time) - 1, 0, 2, 9);
  label(pen, "whole run", height / 2);
}
