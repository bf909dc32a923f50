"use strict";
(function () {
  const filter = document.getElementById("filter");
  const search = document.getElementById("search");
  const shown = document.getElementById("shown");
  const nothing = document.getElementById("nothing");
  const expand = document.getElementById("expand");
  const boxes = Array.from(filter.querySelectorAll("input[type=checkbox]"));
  const items = Array.from(document.querySelectorAll("[data-word]"));
  const rows = Array.from(document.querySelectorAll(".grid tbody tr"));
  const cards = Array.from(document.querySelectorAll("#environments article"));
  const groups = Array.from(document.querySelectorAll("[data-group]"));
  const known = new Set(boxes.map((box) => box.value));

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    for (const item of items) {
      const verdict = item.dataset.word;
      const right = !known.has(verdict) || wanted.has(verdict);
      item.hidden = !(right && words.every((word) => item.dataset.search.includes(word)));
    }
    for (const row of rows) {
      row.hidden = !row.querySelector("[data-word]:not([hidden])");
    }
    for (const group of groups) {
      group.hidden = !group.querySelector("[data-word]:not([hidden])");
    }
    const visible = cards.filter((card) => !card.hidden).length;
    shown.textContent = visible + " of " + cards.length + " environments shown";
    nothing.hidden = visible > 0 || cards.length === 0;
  }

  // Only what scrolls is a stop of the Tab key; without this script every table is one.
  function reach() {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  function openAt(address) {
    const target = address.length > 1 && document.getElementById(decodeURIComponent(address.slice(1)));
    const details = target && target.querySelector(":scope > details");
    if (details) details.open = true;
  }

  function openAll(open) {
    for (const details of document.querySelectorAll("article > details")) details.open = open;
    expand.textContent = open ? "Close all" : "Open all";
    expand.setAttribute("aria-pressed", String(open));
  }

  filter.hidden = false;
  filter.addEventListener("input", apply);
  filter.addEventListener("submit", (event) => event.preventDefault());
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
    if (link) openAt(link.getAttribute("href"));
  });
  document.addEventListener("toggle", reach, true);
  window.addEventListener("resize", reach);
  let before = [];
  window.addEventListener("beforeprint", () => {
    before = Array.from(document.querySelectorAll("details:not([open])"));
    for (const details of before) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of before) details.open = false;
  });
  openAt(location.hash);
  apply();
  reach();
})();
