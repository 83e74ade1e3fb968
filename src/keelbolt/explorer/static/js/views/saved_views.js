// Named filters, stored in this browser. The URL contains the whole filter, so users can share it.

import { h, replace } from "../dom.js";
import { copyButton, field } from "../pieces.js";
import { here, link } from "../router.js";

const STORED = "keelbolt.views";
const MOST = 20;

function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each?.name === "string" && each.query) : [];
  } catch {
    return [];
  }
}

const keep = (views) => localStorage.setItem(STORED, JSON.stringify(views.slice(-MOST)));

const same = (one, other) => link(["tasks"], one) === link(["tasks"], other);

export function savedViews() {
  const element = h("div", { class: "row tight views", role: "group", "aria-label": "Saved views" });
  function draw() {
    const { query } = here();
    const views = kept();
    const current = views.find((each) => same(each.query, query));
    replace(
      element,
      views.map(({ name, query: wanted }) =>
        h(
          "a",
          { class: "chip", href: link(["tasks"], wanted), "aria-current": same(wanted, query) ? "true" : null },
          name,
        ),
      ),
      Object.keys(query).length > 0 &&
        !current &&
        h("button", { type: "button", class: "quiet small", onclick: name }, "Save this view"),
      current &&
        h(
          "button",
          {
            type: "button",
            class: "quiet small",
            onclick: () => {
              keep(kept().filter((each) => each.name !== current.name));
              draw();
            },
          },
          `Remove “${current.name}”`,
        ),
      copyButton(() => location.href, "Copy link"),
    );
  }

  function name() {
    const input = h("input", { required: true, maxlength: "40", autocomplete: "off" });
    const dialog = h(
      "dialog",
      { "aria-labelledby": "view-title", onclose: () => dialog.remove() },
      h(
        "form",
        {
          class: "stack",
          method: "dialog",
          onsubmit: () => {
            const called = input.value.trim();
            if (called) keep([...kept().filter((each) => each.name !== called), { name: called, query: here().query }]);
            draw();
          },
        },
        h("h2", { id: "view-title" }, "Save this view"),
        field("Name", input, "Stored in this browser."),
        h(
          "div",
          { class: "row" },
          h("button", { class: "primary" }, "Save"),
          h("button", { type: "button", onclick: () => dialog.close() }, "Not now"),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  }
  draw();
  return { element, draw };
}
