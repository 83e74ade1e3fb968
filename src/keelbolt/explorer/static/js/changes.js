// The predicted changes of a call that needs an approval, shown above the decision buttons.

import { h } from "./dom.js";
import { tree } from "./json.js";

const text = (value) => (typeof value === "string" ? value : "");

// Returns {changes: [{action, target, summary, …}], warnings: [text]} of a message. Other values are omitted.
export function previewOf(message) {
  const found = (message?.parts ?? []).map((part) => part?.data?.approval?.preview).find((each) => each) ?? {};
  const changes = Array.isArray(found.changes) ? found.changes : [];
  const warnings = Array.isArray(found.warnings) ? found.warnings : [];
  return {
    changes: changes.filter((each) => text(each?.summary)),
    warnings: warnings.filter((each) => text(each)),
  };
}

export function predicted(message) {
  const { changes, warnings } = previewOf(message);
  if (!changes.length && !warnings.length) return null;
  return h(
    "section",
    { class: "stack predicted", "aria-label": "Planned changes" },
    h("h3", {}, "Planned changes"),
    warnings.map((each) => h("p", { class: "bad-ink" }, each)),
    changes.length > 0 && h("ul", {}, changes.map(change)),
  );
}

function change({ action, target, summary, ...more }) {
  return h(
    "li",
    {},
    h("strong", {}, text(action)),
    " ",
    h("code", {}, text(target)),
    ": ",
    summary,
    Object.keys(more).length > 0 && h("details", {}, h("summary", {}, "Details"), tree(more, { open: 2 })),
  );
}
