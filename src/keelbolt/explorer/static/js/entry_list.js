// A list of log entries, one line each, with the selected entry in full.

import { h, replace } from "./dom.js";
import { plural, precise, shorten } from "./format.js";
import { masked, tree } from "./json.js";
import { copyButton, empty } from "./pieces.js";
import { virtualList } from "./virtual.js";

const NAMES = ["event_type", "update_type", "kind", "status", "type"];
const TIMES = ["ts", "created_at", "updated_at"];
const TONES = [
  [/error|fail|cancel|abort|reject/i, "bad"],
  [/success|complete|finish|result|done/i, "good"],
  [/start|progress|step|running/i, "busy"],
  [/ask|pause|approv|input/i, "ask"],
];

const kind = (data) => String(NAMES.map((name) => data?.[name]).find((value) => value) ?? "entry");

const tone = (name) => TONES.find(([pattern]) => pattern.test(name))?.[1] ?? "still";

// Returns the members of an entry that are specific to it.
function summary(data) {
  if (data === null || typeof data !== "object") return String(data);
  const title = data.node_name ?? data.description ?? data.thought ?? data.error;
  const rest = Object.fromEntries(
    Object.entries(masked(data)).filter(
      ([name, value]) =>
        ![...NAMES, ...TIMES, "node_name"].includes(name) &&
        !/(^|_)id$/.test(name) &&
        value !== null &&
        value !== "" &&
        !(typeof value === "object" && !Object.keys(value).length),
    ),
  );
  return shorten([title, JSON.stringify(rest)].filter((each) => each && each !== "{}").join("  "), 300);
}

export function entryList(entries, { label, nothing, more, all }) {
  if (!entries.length) return empty(nothing);
  const side = h("div", { class: "card detail", "aria-live": "polite" }, h("p", { class: "dim" }, "Select an entry."));
  const list = virtualList({
    rowHeight: 36,
    label,
    row: ({ seq, at, data }) => [
      h("span", { class: "mono dim seq" }, seq),
      h("span", { class: "mono dim at" }, precise(at)),
      h("span", { class: `tag wide ${tone(kind(data))}` }, kind(data).toLowerCase().replaceAll("_", " ")),
      h("span", { class: "line" }, summary(data)),
    ],
    onChoose: (entry) =>
      replace(
        side,
        h("div", { class: "row" }, h("h3", {}, `#${entry.seq} ${kind(entry.data)}`), copy(entry.data)),
        tree(entry.data, { open: 2 }),
      ),
  });
  list.set(entries, { anew: true });
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row" },
      h("span", { class: "dim" }, `${more ? "Partial list: " : ""}${plural(entries.length, "entry", "entries")}`),
      more && all && h("button", { type: "button", class: "small", onclick: all }, "Load all"),
    ),
    h("div", { class: "panes" }, list.element, side),
  );
}

const copy = (data) => copyButton(() => JSON.stringify(masked(data), null, 2), "Copy JSON");
