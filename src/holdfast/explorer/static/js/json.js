// JSON for people: a tree that opens piece by piece, bounded, with secrets behind a button.

import { h } from "./dom.js";
import { bytes, shorten } from "./format.js";
import { copyButton, download } from "./pieces.js";

const SECRET =
  /(^|[_\-.])(token|secret|password|passwd|authorization|credentials?|api[_-]?key|private[_-]?key|cookie)s?$|(Token|Secret|Password|ApiKey|Credentials?)$/;
const STRING_CHARACTERS = 600;
const MEMBERS = 100;
const RAW_CHARACTERS = 100_000;

export const isSecret = (name, value) => typeof value === "string" && value !== "" && SECRET.test(name);

// The value with what looks like a secret taken out.
export function masked(value, name = "") {
  if (isSecret(name, value)) return "••••••••";
  if (Array.isArray(value)) return value.map((each) => masked(each, name));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, masked(each, key)]));
  }
  return value;
}

export function tree(value, { open = 2 } = {}) {
  return h("div", { class: "json", role: "group", "aria-label": "JSON" }, node("", value, open));
}

function node(name, value, open) {
  const label = name === "" ? null : h("span", { class: "key" }, name, ": ");
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, label, leaf(name, value));
  const list = Array.isArray(value);
  const entries = Object.entries(value);
  const about = list ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return h("div", { class: "leaf" }, label, list ? "[]" : "{}");
  const body = h("div", { class: "members" });
  const details = h(
    "details",
    {},
    h("summary", {}, label, h("span", { class: "about" }, about, open > 0 ? "" : ` ${preview(value)}`)),
    body,
  );
  let shown = 0;
  const more = () => {
    const next = entries.slice(shown, shown + MEMBERS);
    body.querySelector(":scope > .more")?.remove();
    body.append(...next.map(([key, each]) => node(key, each, open - 1)));
    shown += next.length;
    if (shown < entries.length) {
      body.append(
        h(
          "button",
          { type: "button", class: "quiet small more", onclick: more },
          `Show ${Math.min(MEMBERS, entries.length - shown)} more of ${entries.length}`,
        ),
      );
    }
  };
  details.addEventListener("toggle", () => {
    if (details.open && !shown) more();
  });
  if (open > 0) {
    more();
    details.open = true;
  }
  return details;
}

const preview = (value) => shorten(JSON.stringify(masked(Array.isArray(value) ? value.slice(0, 3) : value)), 60);

function leaf(name, value) {
  if (typeof value !== "string")
    return h("span", { class: `value ${value === null ? "null" : typeof value}` }, String(value));
  if (isSecret(name, value)) {
    const hidden = h("button", { type: "button", class: "quiet small", title: "Show it" }, "•••••••• show");
    hidden.addEventListener("click", () => hidden.replaceWith(text(value)));
    return hidden;
  }
  return text(value);
}

function text(value) {
  if (value.length <= STRING_CHARACTERS) return h("span", { class: "value string" }, JSON.stringify(value));
  const rest = h("button", { type: "button", class: "quiet small" }, `show all ${bytes(value.length)}`);
  const shown = h("span", { class: "value string" }, JSON.stringify(value.slice(0, STRING_CHARACTERS)), "… ", rest);
  rest.addEventListener("click", () => shown.replaceWith(h("span", { class: "value string" }, JSON.stringify(value))));
  return shown;
}

// The same as plain text, to read and to copy.
export function raw(value, { name = "data.json" } = {}) {
  const whole = typeof value === "string" ? value : (JSON.stringify(masked(value), null, 2) ?? "");
  const clipped = whole.length > RAW_CHARACTERS;
  return h(
    "figure",
    { class: "raw" },
    h(
      "figcaption",
      {},
      h("span", {}, clipped ? `The first ${bytes(RAW_CHARACTERS)} of ${bytes(whole.length)}` : bytes(whole.length)),
      copyButton(whole),
      h("button", { type: "button", class: "quiet small", onclick: () => download(name, whole) }, "Download"),
    ),
    h("pre", { tabindex: "0", "aria-label": "Raw text" }, whole.slice(0, RAW_CHARACTERS)),
  );
}
