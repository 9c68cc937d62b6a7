// Filters of runs and findings, links that open what they lead to, and copying.
"use strict";
(() => {
  const form = document.getElementById("filters");
  const shown = document.getElementById("shown");
  const rows = [...document.querySelectorAll("tr[data-run]")];
  const holders = [...document.querySelectorAll("[data-runs]")];
  const links = [...document.querySelectorAll("a[data-run]")];

  // What is said of a run anywhere on the page can be searched for.
  const textOf = new Map(rows.map((row) => [row.dataset.run, row.textContent]));
  for (const holder of holders) {
    for (const run of holder.dataset.runs.trim().split(/\s+/)) {
      textOf.set(run, `${textOf.get(run)} ${holder.textContent}`);
    }
  }
  for (const [run, text] of textOf) textOf.set(run, text.toLowerCase());

  function apply() {
    const data = new FormData(form);
    const statuses = new Set(data.getAll("status"));
    const [cluster, code] = [data.get("cluster"), data.get("code")];
    const text = data.get("text").trim().toLowerCase();
    const matching = new Set(
      rows
        .filter(
          ({ dataset: d }) =>
            statuses.has(d.status) &&
            (!cluster || d.cluster === cluster) &&
            (!code || d.codes.split("\n").includes(code)) &&
            textOf.get(d.run).includes(text),
        )
        .map((row) => row.dataset.run),
    );
    for (const row of rows) row.hidden = !matching.has(row.dataset.run);
    for (const link of links) link.hidden = !matching.has(link.dataset.run);
    let findings = 0;
    for (const holder of holders) {
      const found = holder.dataset.runs.trim().split(/\s+/).some((run) => matching.has(run));
      const other = code && holder.dataset.code && holder.dataset.code !== code;
      holder.hidden = !found || Boolean(other);
      findings += !holder.hidden && holder.classList.contains("finding");
    }
    const word = findings === 1 ? "finding" : "findings";
    shown.textContent = `${matching.size} of ${rows.length} runs, ${findings} ${word}`;
  }

  // A link leads to its finding or run even if that is filtered out or closed.
  function follow() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.hidden) {
      form.reset();
      apply();
    }
    if (target.tagName === "DETAILS") target.open = true;
    target.scrollIntoView();
    if (target.hasAttribute("tabindex")) target.focus({ preventScroll: true });
  }

  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
  }
  form.hidden = false;
  for (const event of ["input", "change"]) form.addEventListener(event, apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", follow);
  apply();
  follow();
})();
