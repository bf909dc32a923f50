"use strict";
(function () {
  const one = (id) => document.getElementById(id);
  const every = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const filter = one("filter"), search = one("search"), expand = one("expand"), dialog = one("compare");
  const boxes = every("input[type=checkbox]", filter);
  const columns = every("#matrix input[name=by]");
  const items = every("[data-word]");
  const cards = every("#environments article");
  const groups = every("[data-group]");
  const known = new Set(boxes.map((box) => box.value));
  const usual = new Set(boxes.filter((box) => box.defaultChecked).map((box) => box.value));
  const { runs, packages } = JSON.parse(one("data").textContent);

  function shown() {
    return new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  }

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = shown();
    for (const item of items) {
      const right = !known.has(item.dataset.word) || wanted.has(item.dataset.word);
      item.hidden = !(right && words.every((word) => item.dataset.search.includes(word)));
    }
    const visible = (element) => element.querySelector("[data-word]:not([hidden])") !== null;
    for (const table of every(".grid")) {
      const rows = every("tbody tr", table);
      for (const row of rows) row.hidden = !visible(row);
      every("thead th", table).forEach((head, column) => {
        const cells = rows.map((row) => row.cells[column]);
        if (column) for (const cell of [head, ...cells]) cell.hidden = !cells.some(visible);
      });
    }
    for (const group of groups) group.hidden = !visible(group);
    const left = cards.filter((card) => !card.hidden).length;
    one("shown").textContent = left + " of " + cards.length + " shown";
    one("nothing").hidden = left > 0 || cards.length === 0;
    keep(wanted);
  }

  // The filters are in the address, so that a copied link shows the same.
  function keep(wanted) {
    const address = new URLSearchParams();
    if (search.value) address.set("q", search.value);
    if (wanted.size !== usual.size || [...wanted].some((word) => !usual.has(word))) address.set("show", [...wanted].join(","));
    const by = columns.find((column) => column.checked);
    if (by && !by.defaultChecked) address.set("by", by.value);
    const text = address.toString();
    history.replaceState(null, "", location.pathname + (text && "?" + text) + location.hash);
  }

  function restore() {
    const address = new URLSearchParams(location.search);
    search.value = address.get("q") || "";
    if (address.has("show")) {
      const wanted = address.get("show").split(",");
      for (const box of boxes) box.checked = wanted.includes(box.value);
    }
    for (const column of columns) if (column.value === address.get("by")) column.checked = true;
  }

  // Only what scrolls is a stop of the Tab key; without this script every table is one.
  function reach() {
    for (const box of every(".scroll, .box")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  function openAt(address) {
    const target = address.length > 1 && one(decodeURIComponent(address.slice(1)));
    if (!target) return;
    const inner = target.querySelector(":scope > details");
    for (let details = inner || target.closest("details"); details; details = details.parentElement.closest("details")) details.open = true;
  }

  function openAll(open) {
    for (const details of every("article > details")) details.open = open;
    expand.textContent = open ? "Close all" : "Open all";
    expand.setAttribute("aria-pressed", String(open));
  }

  function add(parent, tag, text = "") {
    const element = parent.appendChild(document.createElement(tag));
    element.textContent = text;
    return element;
  }

  function seconds(value) {
    return value === undefined ? "–" : value >= 1 ? value.toPrecision(3) + " s" : (value * 1000).toPrecision(3) + " ms";
  }

  function table(title, lines, nothing) {
    add(one("compared"), "h3", title);
    if (!lines.length) return add(one("compared"), "p", nothing);
    const box = add(one("compared"), "div");
    box.className = "scroll";
    const body = add(add(box, "table"), "tbody");
    for (const [name, ...cells] of lines) {
      const row = add(body, "tr");
      add(row, "th", name).scope = "row";
      for (const cell of cells) add(add(row, "td"), "bdi", cell);
    }
  }

  function differing(old, now) {
    const names = [...new Set([...Object.keys(old), ...Object.keys(now)])];
    return names.filter((name) => old[name] !== now[name]).map((name) => [name, old[name] ?? "–", now[name] ?? "–"]);
  }

  function compare() {
    const [old, now] = ["old", "new"].map((side) => runs[one("compare-" + side).value]);
    one("compared").replaceChildren();
    if (!old || !now) return;
    for (const side of ["old", "new"]) one("evidence-" + side).href = "verdicts/" + one("compare-" + side).value + ".json";
    const grown = old.size && now.size ? ((now.size / old.size - 1) * 100).toFixed(1) + " %" : "";
    const mega = (bytes) => (bytes ? (bytes / 1e6).toFixed(0) + " MB" : "–");
    table("Verdict", [...differing(old.facts, now.facts), ["size", mega(old.size), mega(now.size), grown]], "");
    table("Checks with another outcome", differing(old.checks, now.checks), "None.");
    table("Start-up", [...new Set([...Object.keys(old.seconds), ...Object.keys(now.seconds)])].map((name) => {
      const [before, after] = [old.seconds[name], now.seconds[name]];
      return [name, seconds(before), seconds(after), before && after ? (after / before).toFixed(2) + " x" : ""];
    }), "Not measured.");
    const locks = [packages[old.lock], packages[now.lock]];
    if (old.lock === now.lock) table("Packages", [], "Both have the same lock.");
    else if (locks.every(Boolean)) table("Packages with another version", differing(...locks), "None.");
    else table("Packages", [], "Not known: a lock is no longer in images/.");
  }

  function choose(now) {
    const same = Object.keys(runs).filter((id) => runs[id].name === runs[now].name);
    one("compare-new").value = now;
    one("compare-old").value = same[same.indexOf(now) - 1] || now;
    compare();
    dialog.showModal();
  }

  for (const side of ["old", "new"]) {
    const select = one("compare-" + side), byName = new Map();
    for (const [id, run] of Object.entries(runs)) {
      if (!byName.has(run.name)) {
        byName.set(run.name, add(select, "optgroup"));
        byName.get(run.name).label = run.name;
      }
      add(byName.get(run.name), "option", run.title).value = id;
    }
    select.addEventListener("change", compare);
  }
  filter.hidden = false;
  one("open-compare").hidden = Object.keys(runs).length < 2;
  one("open-compare").addEventListener("click", () => choose(Object.keys(runs).at(-1)));
  filter.addEventListener("input", apply);
  filter.addEventListener("submit", (event) => event.preventDefault());
  for (const column of columns) column.addEventListener("change", () => { apply(); reach(); });
  expand.addEventListener("click", () => openAll(expand.getAttribute("aria-pressed") !== "true"));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      event.preventDefault();
      search.focus();
    }
    if (event.key === "Escape" && event.target === search) {
      search.value = "";
      apply();
    }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link) return;
    if (link.dataset.run in runs && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      choose(link.dataset.run);
    } else openAt(link.getAttribute("href"));
  });
  document.addEventListener("toggle", reach, true);
  window.addEventListener("resize", reach);
  let before = [];
  window.addEventListener("beforeprint", () => {
    before = every("details:not([open])");
    for (const details of before) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of before) details.open = false;
  });
  restore();
  openAt(location.hash);
  apply();
  reach();
})();
