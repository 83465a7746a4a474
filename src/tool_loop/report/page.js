(() => {
"use strict";
const $ = (q, at = document) => at.querySelector(q), all = (q, at = document) => [...at.querySelectorAll(q)];
const root = document.documentElement, rows = all("main details:not(.in)");
root.classList.add("js");
let current = -1, kinds = new Set(), words = "";

// Reading a run: one row is current; j and k move, Enter folds.
const shown = () => rows.filter((r) => !r.closest("[hidden]"));
const go = (row) => {
  if (!row) return;
  all(".on").forEach((r) => r.classList.remove("on"));
  row.classList.add("on");
  current = rows.indexOf(row);
  const head = $("summary", row);
  head.focus({preventScroll: true});
  row.scrollIntoView({block: "nearest"});
  const box = head.getBoundingClientRect();
  if (box.top < 70) scrollBy(0, box.top - 90);
};
const move = (by, only) => {
  const list = shown().filter(only || (() => true));
  const at = list.findIndex((r) => rows.indexOf(r) >= current);
  const here = at >= 0 && rows.indexOf(list[at]) === current;
  go(by > 0 ? list[at < 0 ? list.length - 1 : here ? Math.min(at + 1, list.length - 1) : at]
            : list[at < 0 ? list.length - 1 : Math.max(at - 1, 0)]);
};
const failed = (row) => row.hasAttribute("data-k");

// Search and filter: a row stays when it holds every word and one of the kinds.
const texts = new Map();
const text = (row) => {
  if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
  return texts.get(row);
};
const paint = (list, needle) => {
  if (!window.CSS || !CSS.highlights) return;
  CSS.highlights.delete("hit");
  if (!needle) return;
  const ranges = [];
  for (const row of list) {
    const walk = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode()) && ranges.length < 2000;) {
      const low = node.data.toLowerCase();
      if (low.length !== node.data.length) continue;
      for (let at = low.indexOf(needle); at >= 0 && ranges.length < 2000; at = low.indexOf(needle, at + needle.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + needle.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("hit", new Highlight(...ranges));
};
const sift = () => {
  const needles = words.toLowerCase().split(/\s+/).filter(Boolean), hits = [];
  for (const row of rows) {
    const right = !kinds.size || (row.dataset.k || "").split(" ").some((k) => kinds.has(k));
    const keep = right && needles.every((n) => text(row).includes(n));
    row.hidden = !keep;
    if (keep) hits.push(row);
  }
  for (const box of all(".s,.o,.pair")) box.hidden = !all("details:not(.in)", box).some((r) => !r.hidden) && (needles.length > 0 || kinds.size > 0);
  const narrowed = needles.length || kinds.size;
  $("#found").textContent = narrowed ? `${hits.length} of ${rows.length}` : "";
  paint(needles.length ? hits : [], needles[0]);
};
let soon;
const box = $("#search");
if (box) box.addEventListener("input", () => {
  clearTimeout(soon);
  soon = setTimeout(() => { words = box.value; sift(); }, 120);
});
all(".chips button").forEach((chip) => chip.addEventListener("click", () => {
  const on = chip.getAttribute("aria-pressed") !== "true";
  chip.setAttribute("aria-pressed", on);
  kinds[on ? "add" : "delete"](chip.dataset.k);
  sift();
}));

// Folding, the theme, the scale of the bars, the list of keys.
const fold = () => {
  const open = shown().some((r) => !r.open);
  shown().forEach((r) => { r.open = open; });
};
const theme = () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
};
const measure = () => {
  for (const step of all(".s")) {
    let from = Infinity, to = 0;
    for (const bar of all("summary>i[style]", step)) {
      const a = parseFloat(bar.style.getPropertyValue("--a"));
      from = Math.min(from, a);
      to = Math.max(to, a + parseFloat(bar.style.getPropertyValue("--w")));
    }
    step.style.setProperty("--s", Math.min(from, to));
    step.style.setProperty("--d", Math.max(to - from, 0.1));
  }
};
const scale = () => {
  if (!root.classList.contains("by-step")) measure();
  const on = root.classList.toggle("by-step"), button = $("#scale");
  if (button) button.textContent = on ? "Bars: step" : "Bars: run";
};
const help = () => { const h = $("#keys"); h.hidden = !h.hidden; };
const press = {"#theme": theme, "#fold": fold, "#scale": scale, "#help": help};
for (const [id, act] of Object.entries(press)) { const b = $(id); if (b) b.addEventListener("click", act); }
if (root.dataset.scale === "step") scale();

// A link to a folded row opens it.
const arrive = () => {
  const at = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  const row = at && (rows.includes(at) ? at : $("details", at));
  if (!row) return;
  if (row.hidden) { words = box.value = ""; kinds.clear(); all(".chips button").forEach((c) => c.setAttribute("aria-pressed", false)); sift(); }
  row.open = true;
  go(row);
};
addEventListener("hashchange", arrive);
arrive();

// The glance is a map: a click goes to what ran at that moment.
all(".jump").forEach((map) => map.addEventListener("click", (event) => {
  const r = map.getBoundingClientRect(), x = (event.clientX - r.left) / r.width * 1000;
  let best = null, near = Infinity;
  for (const bar of all("main summary>i[style]")) {
    const a = parseFloat(bar.style.getPropertyValue("--a")), w = parseFloat(bar.style.getPropertyValue("--w"));
    const off = x < a ? a - x : x > a + w ? x - a - w : 0;
    if (off < near) { near = off; best = bar.closest("details"); }
  }
  go(best);
}));

const keys = {
  j: () => move(1), k: () => move(-1), n: () => move(1, failed), p: () => move(-1, failed),
  g: () => go(shown()[0]), G: () => go(shown().at(-1)), e: fold, t: theme, s: scale, "?": help,
  o: () => { if (rows[current]) rows[current].open = !rows[current].open; },
  "/": () => { box.focus(); box.select(); },
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    $("#keys").hidden = true;
    if (box.value || kinds.size) { box.value = words = ""; kinds.clear(); all(".chips button").forEach((c) => c.setAttribute("aria-pressed", false)); sift(); }
    box.blur();
    return;
  }
  if (event.target.matches("input")) return;
  const act = keys[event.key];
  if (act) { event.preventDefault(); act(); }
});
document.addEventListener("focusin", (event) => {
  const row = event.target.matches("summary") && event.target.parentElement;
  if (row && rows.includes(row)) current = rows.indexOf(row);
});

// Paper cannot unfold anything.
let folded = [];
addEventListener("beforeprint", () => { folded = all("details:not([open])"); folded.forEach((d) => { d.open = true; }); });
addEventListener("afterprint", () => { folded.forEach((d) => { d.open = false; }); });
})();
