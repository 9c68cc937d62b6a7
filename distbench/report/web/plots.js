// Draws a plot of each table that has one, when it comes into view.
"use strict";
(() => {
  const { Plotting, ColumnDataSource, HoverTool, Legend, LegendItem, FixedTicker } = Bokeh;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const LINES = ["#3b76c4", "#d1662b", "#2f9461", "#a15bb5", "#b8921d", "#3aa0ad", "#c4558a", "#7d7d7d"];

  const DIGIT = 0.56; // how wide one is, in sizes of the font
  const SMALLEST = 8;

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function read(table) {
    const cells = (row) => [...row.cells].slice(1);
    return {
      corner: table.tHead.rows[0].cells[0].textContent,
      columns: cells(table.tHead.rows[0]).map((cell) => cell.textContent),
      rows: [...table.tBodies[0].rows].map((row) => ({ name: row.cells[0].textContent, cells: cells(row) })),
    };
  }

  // Bokeh takes text in $$…$$, \(…\) or \[…\] for mathematics, and would load MathJax.
  const plain = (text) => text.replaceAll("$$", "$ $").replace(/\\(?=[()[\]])/g, "\\ ");
  // A categorical axis needs names that differ.
  function distinct(names) {
    const seen = new Map();
    return names.map((name) => {
      const count = (seen.get(name) ?? 0) + 1;
      seen.set(name, count);
      return plain(count > 1 ? `${name} (${count})` : name);
    });
  }
  // Names that would run into each other are turned: a letter is some 7 pixels wide.
  const isCrowded = (names, width) => 7 * Math.max(...names.map((name) => name.length)) > (width - 140) / names.length;
  const number = (cell) => (cell.textContent === "" ? NaN : Number(cell.textContent.replace("inf", "Infinity")));

  function makeFigure(width, height, settings) {
    const plot = Plotting.figure({
      width, height, tools: "pan,box_zoom,reset,save", toolbar_location: "right",
      background_fill_color: color("page"), border_fill_color: color("panel"),
      outline_line_color: color("line"), ...settings,
    });
    plot.toolbar.logo = null;
    for (const axis of [...plot.above, ...plot.below, ...plot.left]) {
      axis.setv?.({
        axis_label_text_color: color("dim"), major_label_text_color: color("text"),
        axis_line_color: color("line"), major_tick_line_color: color("line"), minor_tick_line_color: null,
        axis_label_text_font_style: "normal",
      });
    }
    for (const grid of plot.center) grid.setv?.({ grid_line_color: color("line"), grid_line_alpha: 0.5 });
    return plot;
  }

  function drawMap({ columns, rows }, width) {
    const x = distinct(columns);
    const y = distinct(rows.map((row) => row.name));
    const data = { x: [], y: [], fill: [], ink: [], text: [], tip: [], first: [] };
    rows.forEach((row, r) => row.cells.forEach((cell, c) => {
      const level = /\bq(\d)\b/.exec(cell.className)?.[1];
      if (level === undefined) return;
      const first = cell.classList.contains("first");
      data.x.push(x[c]);
      data.y.push(y[r]);
      data.fill.push(color(`q${level}`));
      data.ink.push(color(level === "5" ? "q5-text" : "q-text"));
      data.text.push(cell.firstChild.textContent);
      data.tip.push(plain(cell.title));
      data.first.push(first ? 3 : 0);
    }));
    const crowded = isCrowded(x, width);
    const height = 90 + 30 * rows.length + (crowded ? 50 : 0);
    const plot = makeFigure(width, height, { x_range: x, y_range: y.toReversed(), x_axis_location: "above" });
    if (crowded) plot.above[0].major_label_orientation = Math.PI / 6;
    // Numbers that would run into each other are written smaller, or left to the table.
    const beside = 60 + 7 * Math.max(...y.map((name) => name.length));
    const room = (width - beside) / x.length - 4;
    const size = Math.min(12, Math.floor(room / (DIGIT * Math.max(1, ...data.text.map((text) => text.length)))));
    const source = new ColumnDataSource({ data });
    const cells = plot.rect({
      x: { field: "x" }, y: { field: "y" }, width: 0.98, height: 0.94, source,
      fill_color: { field: "fill" }, line_color: color("mark"), line_width: { field: "first" },
    });
    plot.text({
      x: { field: "x" }, y: { field: "y" }, text: { field: "text" }, source, text_align: "center",
      text_baseline: "middle", text_font_size: `${Math.max(size, SMALLEST)}px`, text_color: { field: "ink" },
      visible: size >= SMALLEST,
    });
    plot.add_tools(new HoverTool({ renderers: [cells], tooltips: [["place", "@y, @x"], ["error ÷ bound", "@text"], ["", "@tip"]] }));
    return plot;
  }

  function drawSeries(lines, steps, label, width) {
    const height = 260 + 22 * Math.ceil(lines.length / Math.max(1, Math.floor(width / 190)));
    const plot = makeFigure(width, height, { x_axis_label: label });
    const axis = plot.below[0];
    if (steps.length <= 20) axis.ticker = new FixedTicker({ ticks: steps });
    axis.major_label_overrides = new Map([[-1, "start"]]);
    const shown = [];
    const items = [];
    lines.forEach((line, n) => {
      const data = { x: steps, y: line.values, name: steps.map(() => plain(line.name)) };
      const source = new ColumnDataSource({ data });
      const expected = line.name.includes("one device");
      const replica = /(\d+)/.exec(line.name)?.[1];
      const stroke = expected && replica === undefined ? color("text") : LINES[Number(replica ?? n) % LINES.length];
      const drawn = plot.line({ x: { field: "x" }, y: { field: "y" }, source, line_color: stroke, line_width: 2, line_dash: expected ? "dashed" : "solid" });
      const dots = plot.scatter({ x: { field: "x" }, y: { field: "y" }, source, marker: expected ? "square" : "circle", size: 6, fill_color: expected ? color("page") : stroke, line_color: stroke });
      shown.push(dots);
      items.push(new LegendItem({ label: { value: plain(line.name) }, renderers: [drawn, dots] }));
    });
    plot.add_layout(
      new Legend({
        items, click_policy: "hide", background_fill_color: null, border_line_color: null,
        label_text_color: color("text"), ncols: Math.max(1, Math.floor(width / 190)), label_text_font_size: "12px",
      }),
      "below",
    );
    plot.add_tools(new HoverTool({ renderers: shown, tooltips: [["", "@name"], [label, "@x"], ["value", "@y{0.000000e+0}"]] }));
    return plot;
  }

  function drawLines({ corner, columns, rows }, width) {
    const lines = columns.map((name, c) => ({ name, values: rows.map((row) => number(row.cells[c])) }));
    return drawSeries(lines, rows.map((row) => Number(row.name)), corner, width);
  }

  function drawNorms({ columns, rows }, width, variable) {
    const steps = columns.slice(1).map((name) => (name === "start" ? -1 : Number(name)));
    const lines = rows
      .filter((row) => row.name === variable)
      .map(({ cells: [who, ...values] }) => ({ name: who.textContent, values: values.map(number) }));
    return drawSeries(lines, steps, "step", width);
  }

  function drawBars({ corner, columns, rows }, width) {
    const x = distinct(rows.map((row) => row.name));
    const crowded = isCrowded(x, width);
    const plot = makeFigure(width, crowded ? 270 : 240, { x_range: x, x_axis_label: corner, y_axis_label: "comparisons" });
    if (crowded) plot.below[0].major_label_orientation = Math.PI / 4;
    const bottom = rows.map(() => 0);
    columns.forEach((name, c) => {
      const counts = rows.map((row) => number(row.cells[c]));
      const data = { x, count: counts, bottom: [...bottom], top: counts.map((count, r) => bottom[r] + count), name: x.map(() => name) };
      counts.forEach((count, r) => { bottom[r] += count; });
      const bars = plot.vbar({ x: { field: "x" }, bottom: { field: "bottom" }, top: { field: "top" }, width: 0.85, source: new ColumnDataSource({ data }), fill_color: color(name === "wrong" ? "q4" : "q1"), line_color: color("line") });
      plot.add_tools(new HoverTool({ renderers: [bars], tooltips: [["ratio", "@x"], ["@name", "@count"]] }));
    });
    plot.y_range.start = 0;
    return plot;
  }

  const DRAW = { map: drawMap, lines: drawLines, bars: drawBars, norms: drawNorms };

  function prepare(figure) {
    const table = figure.querySelector("table");
    const canvas = document.createElement("div");
    canvas.className = "plot";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${figure.querySelector("figcaption").textContent}: a plot of the table below`);
    const details = figure.querySelector("details");
    figure.insertBefore(canvas, details);
    if (figure.dataset.plot === "norms") addChoice(figure, canvas, table);
    return canvas;
  }

  function addChoice(figure, canvas, table) {
    const names = [...new Set(read(table).rows.map((row) => row.name))];
    const label = document.createElement("label");
    label.className = "norms";
    label.textContent = "Variable ";
    const select = document.createElement("select");
    for (const name of names) select.add(new Option(name, name));
    select.addEventListener("change", () => draw(figure, canvas));
    label.append(select);
    figure.insertBefore(label, canvas);
  }

  async function draw(figure, canvas) {
    const width = Math.max(280, Math.min(canvas.clientWidth, 1100));
    const variable = figure.querySelector("label.norms select")?.value;
    const plot = DRAW[figure.dataset.plot](read(figure.querySelector("table")), width, variable);
    views.get(canvas)?.remove();
    canvas.replaceChildren();
    views.set(canvas, await Plotting.show(plot, canvas));
    canvas.dataset.drawn = "yes";
  }

  const views = new Map();
  const drawn = new Map();
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      drawn.set(target, target.parentElement);
      draw(target.parentElement, target);
    }
  }, { rootMargin: "300px" });

  Bokeh.set_log_level("error");
  for (const list of document.querySelectorAll("figure.numbers > details")) list.open = false;
  for (const figure of document.querySelectorAll("figure[data-plot]")) watcher.observe(prepare(figure));
  dark.addEventListener("change", () => drawn.forEach((figure, canvas) => draw(figure, canvas)));
})();
