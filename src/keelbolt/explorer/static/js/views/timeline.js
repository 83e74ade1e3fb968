// The log, entry by entry, in a virtual list.

import { h, later, replace } from "../dom.js";
import { KINDS, detail, group, kindOf, summary, toneOf } from "../events.js";
import { duration, number, plural, precise } from "../format.js";
import { here, link, setQuery } from "../router.js";
import { virtualList } from "../virtual.js";

export function timeline({ log, onFork, onReplay }) {
  const filter = { kind: here().query.kind ?? "", text: "" };
  let items = [];
  let following = !here().query.event;
  const side = h("div", { class: "card detail", "aria-live": "polite" });
  const note = h("span", { class: "dim small" });
  const list = virtualList({
    rowHeight: 36,
    label: "Entries of the log",
    onChoose: choose,
    row: (entry) => [
      h("span", { class: "mono dim seq" }, entry.seq),
      h("span", { class: "mono dim at" }, precise(entry.at)),
      h("span", { class: `tag ${toneOf(entry)}` }, kindOf(entry).label),
      h("span", { class: "line" }, summary(entry)),
    ],
  });
  const search = h("input", {
    type: "search",
    placeholder: "Search the log",
    "aria-label": "Search the log",
    oninput: later(() => {
      filter.text = search.value.trim().toLowerCase();
      draw(true);
    }, 150),
  });
  const kind = h("select", {
    "aria-label": "Kind of entry",
    onchange: () => {
      filter.kind = kind.value;
      setQuery({ kind: kind.value });
      draw(true);
    },
  });
  const end = h(
    "button",
    {
      type: "button",
      class: "small",
      onclick: () => {
        following = true;
        list.toEnd();
      },
    },
    "Newest",
  );
  const element = h(
    "div",
    { class: "timeline" },
    h("div", { class: "row bar" }, h("div", { class: "bar-search" }, search), h("div", {}, kind), end, note),
    h("div", { class: "panes" }, list.element, side),
  );

  list.element.addEventListener(
    "wheel",
    () => {
      following = false;
    },
    { passive: true },
  );
  list.element.addEventListener("pointerdown", () => {
    following = false;
  });

  const wanted = (entry) =>
    (!filter.kind || group(entry) === filter.kind) &&
    (!filter.text || summary(entry).toLowerCase().includes(filter.text));

  function drawKinds() {
    const counts = new Map();
    for (const entry of log.entries) counts.set(group(entry), (counts.get(group(entry)) ?? 0) + 1);
    replace(
      kind,
      h("option", { value: "" }, `Everything (${number(log.entries.length)})`),
      [...counts].map(([name, count]) =>
        h(
          "option",
          { value: name, selected: name === filter.kind },
          `${KINDS[name]?.label ?? name} (${number(count)})`,
        ),
      ),
    );
  }

  function draw(anew = false) {
    if (anew || document.activeElement !== kind) drawKinds(); // not while the menu is open
    items = filter.kind || filter.text ? log.entries.filter(wanted) : log.entries;
    const atEnd = list.set(items, { anew });
    if (following && (atEnd || anew)) list.toEnd();
    note.textContent =
      items.length === log.entries.length
        ? plural(items.length, "entry", "entries")
        : `${number(items.length)} of ${plural(log.entries.length, "entry", "entries")}`;
  }

  function choose(entry) {
    following = false;
    setQuery({ event: entry.seq });
    const start = new Date(log.entries[0].at);
    replace(
      side,
      detail(entry, {
        href: link(["tasks", log.id], { ...here().query, event: entry.seq }),
        start: duration(new Date(entry.at) - start) || "0 ms",
        actions: [
          h("button", { type: "button", class: "small", onclick: () => onReplay(entry.seq) }, "Task at this entry"),
          h("button", { type: "button", class: "small", onclick: () => onFork(entry.seq) }, "Fork from here"),
        ],
      }),
    );
  }

  return {
    element,
    grow: () => draw(false),
    start() {
      draw(true);
      const asked = Number(here().query.event);
      const index = items.findIndex(({ seq }) => seq === asked);
      if (index >= 0) {
        requestAnimationFrame(() => list.center(index)); // after the layout
        choose(items[index]);
      } else if (log.entries.length) {
        replace(
          side,
          h(
            "p",
            { class: "dim" },
            asked
              ? `Entry ${asked} is not in the log${asked <= log.floor ? ": it was removed by retention" : ""}.`
              : "Select an entry to see its details. Use the arrow keys to move.",
          ),
        );
      }
    },
  };
}
