// A virtual list: only visible rows are in the DOM. All rows have the same height.

import { h, soon } from "./dom.js";

const SPARE = 8; // rows beyond the edges, so that a fast scroll shows no gaps

export function virtualList({ rowHeight, label, row, onChoose }) {
  const space = h("div", { role: "presentation", class: "space" });
  const element = h("div", { class: "virtual", role: "listbox", tabindex: "0", "aria-label": label }, space);
  const shown = new Map(); // index → element
  let items = [];
  let chosen = -1;

  const draw = soon(() => {
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - SPARE);
    const last = Math.min(items.length, Math.ceil((element.scrollTop + element.clientHeight) / rowHeight) + SPARE);
    for (const [index, each] of shown) {
      if (index < first || index >= last) {
        each.remove();
        shown.delete(index);
      }
    }
    const added = document.createDocumentFragment();
    for (let index = first; index < last; index += 1) {
      if (shown.has(index)) continue;
      const each = h(
        "div",
        {
          role: "option",
          id: `row-${index}`,
          class: "vrow",
          "aria-setsize": items.length,
          "aria-posinset": index + 1,
          "aria-selected": String(index === chosen),
          onclick: () => choose(index, true),
        },
        row(items[index], index),
      );
      each.style.transform = `translateY(${index * rowHeight}px)`;
      each.style.height = `${rowHeight}px`;
      shown.set(index, each);
      added.append(each);
    }
    space.append(added);
    mark();
  });

  function mark() {
    for (const [index, each] of shown) each.setAttribute("aria-selected", String(index === chosen));
    if (shown.has(chosen)) element.setAttribute("aria-activedescendant", `row-${chosen}`);
    else element.removeAttribute("aria-activedescendant");
  }

  function reveal(index) {
    const top = index * rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + element.clientHeight)
      element.scrollTop = top + rowHeight - element.clientHeight;
  }

  function choose(index, notify = false) {
    if (!items.length) return;
    chosen = Math.max(0, Math.min(items.length - 1, index));
    reveal(chosen);
    draw();
    if (notify) onChoose(items[chosen], chosen);
  }

  element.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(element);
  element.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(element.clientHeight / rowHeight) - 1);
    const to = {
      ArrowDown: chosen + 1,
      ArrowUp: chosen - 1,
      PageDown: chosen + page,
      PageUp: chosen - page,
      Home: 0,
      End: items.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to, true);
  });

  return {
    element,
    choose,
    // Replaces the items. Rows keep their elements; with `anew`, all rows are redrawn.
    set(list, { anew = false } = {}) {
      const atEnd = element.scrollTop + element.clientHeight >= items.length * rowHeight - rowHeight * 1.5;
      items = list;
      space.style.height = `${items.length * rowHeight}px`;
      element.style.setProperty("--whole", `${Math.max(1, items.length) * rowHeight + 2}px`);
      if (anew) {
        for (const each of shown.values()) each.remove();
        shown.clear();
        chosen = -1;
      }
      draw();
      return atEnd;
    },
    center(index) {
      choose(index);
      element.scrollTop = index * rowHeight - (element.clientHeight - rowHeight) / 2;
    },
    toEnd() {
      element.scrollTop = items.length * rowHeight;
    },
  };
}
