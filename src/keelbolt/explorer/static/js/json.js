// A bounded JSON tree whose nodes open on demand; secrets are hidden behind a button.

import { h } from "./dom.js";
import { bytes, shorten } from "./format.js";
import { copyButton, download } from "./pieces.js";

const SECRET =
  /(^|[_\-.])(token|secret|password|passwd|authorization|credential|api[_-]?key|private[_-]?key|cookie)s?$/;
const STRING_CHARACTERS = 600;
const MEMBERS = 100;
const RAW_CHARACTERS = 100_000;

const words = (name) => name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase(); // apiKey is api_key

// A field named token may hold a word of a text; it is hidden if its value looks like a secret.
const opaque = (value) => /^((bearer|basic) )?(?=\S*\d)(?=\S*[a-z])\S{12,}$/i.test(value);

export const isSecret = (name, value) =>
  typeof value === "string" && value !== "" && SECRET.test(words(name)) && (!/^tokens?$/i.test(name) || opaque(value));

// Returns the value without the parts that look like secrets.
export function masked(value, name = "") {
  if (isSecret(name, value)) return "••••••••";
  if (Array.isArray(value)) return value.map((each) => masked(each, name));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, masked(each, key)]));
  }
  return value;
}

export function tree(value, { open = 2 } = {}) {
  const box = h("div", { class: "json", role: "group", "aria-label": "JSON" });
  if (nested(value)) fill(box, value, open);
  else box.append(node("", value, open));
  return box;
}

const nested = (value) => value !== null && typeof value === "object" && Object.keys(value).length > 0;

// Adds members in batches.
function fill(body, value, open) {
  const entries = Object.entries(value);
  let shown = 0;
  const more = () => {
    const next = entries.slice(shown, shown + MEMBERS);
    body.querySelector(":scope > .more")?.remove();
    body.append(...next.map(([key, each]) => node(key, each, open - 1)));
    shown += next.length;
    if (shown === entries.length) return;
    const label = `Show ${Math.min(MEMBERS, entries.length - shown)} more of ${entries.length}`;
    body.append(h("button", { type: "button", class: "quiet small more", onclick: more }, label));
  };
  more();
}

function node(name, value, open) {
  const label = name === "" ? null : h("span", { class: "key" }, name, ": ");
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, label, leaf(name, value));
  const list = Array.isArray(value);
  if (!nested(value)) return h("div", { class: "leaf" }, label, list ? "[]" : "{}");
  const count = Object.keys(value).length;
  const about = `${list ? `[${count}]` : `{${count}}`}${open > 0 ? "" : ` ${preview(value)}`}`;
  const body = h("div", { class: "members" });
  const details = h("details", {}, h("summary", {}, label, h("span", { class: "about" }, about)), body);
  const once = () => !body.childElementCount && fill(body, value, open);
  details.addEventListener("toggle", () => details.open && once());
  if (open > 0) {
    once();
    details.open = true;
  }
  return details;
}

const preview = (value) => shorten(JSON.stringify(masked(Array.isArray(value) ? value.slice(0, 3) : value)), 60);

function leaf(name, value) {
  if (typeof value !== "string")
    return h("span", { class: `value ${value === null ? "null" : typeof value}` }, String(value));
  if (isSecret(name, value)) {
    const hidden = h("button", { type: "button", class: "quiet small", title: "Show" }, "•••••••• show");
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

// The same value as plain text, to read and copy.
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
