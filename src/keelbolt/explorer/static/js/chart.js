// A chart of horizontal bars over time.

import { h } from "./dom.js";
import { duration, precise } from "./format.js";

const ROWS = 200;
const TICKS = 5;

// Bars: {lane, label, about, from, to, tone, seq, open, silent}. Times are milliseconds.
export function chart(list, about, onEvent) {
  const start = Math.min(...list.map(({ from }) => from));
  const end = Math.max(start + 1, ...list.map(({ to }) => to));
  const place = (at) => ((at - start) / (end - start)) * 100;
  const tick = (index) => (index ? `+${duration(((end - start) * index) / (TICKS - 1))}` : precise(start));
  const ticks = Array.from({ length: TICKS }, (_, index) =>
    h("span", { style: { left: `${(index / (TICKS - 1)) * 100}%` } }, tick(index)),
  );
  return h(
    "div",
    { class: "stack" },
    h("p", { class: "dim" }, `${duration(end - start)} in total, ${about}.`),
    h(
      "div",
      { class: "waterfall" },
      h("div", { class: "axis", "aria-hidden": "true" }, ticks),
      h(
        "ol",
        {},
        list.slice(0, ROWS).map((bar) => lane(bar, place, onEvent)),
      ),
    ),
    list.length > ROWS && h("p", { class: "dim" }, `The first ${ROWS} of ${list.length}; see the list for all.`),
  );
}

function lane(bar, place, onEvent) {
  const piece = (kind, from, to, title) =>
    h("div", { class: `bar ${kind}`, title, style: { left: `${place(from)}%`, width: `${place(to) - place(from)}%` } });
  return h(
    "li",
    { class: `lane lane-${bar.lane}` },
    h(
      "button",
      { type: "button", class: "lane-label", onclick: () => onEvent(bar.seq), title: `Entry ${bar.seq}` },
      h("span", { class: "lane-name" }, bar.label),
      h("span", { class: "dim small" }, bar.about),
    ),
    h(
      "div",
      { class: "track" },
      piece(`${bar.tone} ${bar.open ? "open" : ""}`, bar.from, bar.silent ?? bar.to),
      bar.silent && piece("silent bad", bar.silent, bar.to, `No entry for ${duration(bar.to - bar.silent)}`),
      took(bar, place(bar.from), place(bar.silent ?? bar.to), place(bar.to)),
    ),
  );
}

// The duration: inside the bar, before its silent end, or beside the bar if there is space.
function took(bar, from, solid, to) {
  const text = bar.open ? "…" : bar.to > bar.from ? duration(bar.to - bar.from) : "";
  if (solid - from > 15)
    return h("span", { class: `bar-time inside ${bar.tone}`, style: { right: `${100 - solid}%` } }, text);
  return h("span", { class: "bar-time dim", style: to < 85 ? { left: `${to}%` } : { right: `${100 - from}%` } }, text);
}
