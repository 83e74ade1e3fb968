// The rows of the task list. Unchanged rows are reused.

import { h } from "../dom.js";
import { ENDED, ago, duration, fullMoment, shorten, stateName } from "../format.js";
import { plainText } from "../parts.js";
import { badge, tag } from "../pieces.js";
import { link } from "../router.js";
import { titleOf } from "../titles.js";
import { parsePartition } from "../partition.js";

export const took = (task, now = Date.now()) =>
  (ENDED.includes(stateName(task.status.state)) ? Date.parse(task.status.timestamp) : now) - Date.parse(task.created);

// Returns the first message: its text, or its JSON in one line.
function title(task) {
  try {
    const data = JSON.parse(task.said);
    if (data && typeof data === "object") return titleOf({ parts: [{ data }] });
  } catch {
    /* not JSON: shown as text */
  }
  return task.said;
}

// Returns the owner of a task from its partition, in the list of all owners.
export const ownerOf = (task) => parsePartition(task.partition ?? "").label;
export const partitionQuery = (task) => parsePartition(task.partition ?? "").query ?? {};

export function taskRows({ ownerQuery, chosen, onChoose, owners }) {
  const known = new Map(); // id → {key, element}
  return (task, { fresh }) => {
    const ended = ENDED.includes(stateName(task.status.state));
    const href = link(["tasks", task.id], ownerQuery(task));
    const key = JSON.stringify([
      task.status.timestamp,
      task.status.state,
      fresh,
      chosen.has(task.id),
      owners(),
      href,
      ago(task.status.timestamp),
      ended || Math.floor(took(task) / 1000),
    ]);
    const before = known.get(task.id);
    if (before?.key === key) return before.element;
    const element = row(task, { fresh, href, chosen, onChoose, owner: owners() });
    known.set(task.id, { key, element });
    return element;
  };
}

function row(task, { fresh, href, chosen, onChoose, owner }) {
  const name = title(task) || "Task";
  const statusText = shorten(plainText(task.status.message).split("\n")[0], 160);
  return h(
    "tr",
    {
      dataset: { id: task.id },
      class: fresh ? "fresh" : "",
      onclick: (event) => {
        if (!event.target.closest("a, button, input, label") && !getSelection().toString()) location.hash = href;
      },
    },
    h(
      "td",
      { class: "choose" },
      h("input", {
        type: "checkbox",
        checked: chosen.has(task.id),
        "aria-label": `Select ${name}`,
        onchange: (event) => onChoose(task, event.target.checked),
      }),
    ),
    h("td", {}, badge(task.status.state)),
    h(
      "td",
      { class: "said" },
      h("a", { href, title: task.id }, name),
      statusText && h("span", { class: "dim small" }, statusText),
    ),
    h("td", { class: "wide" }, task.skill && tag(task.skill)),
    owner && h("td", { class: "wide" }, ownerOf(task)),
    h("td", { class: "dim wide" }, duration(took(task))),
    h(
      "td",
      {},
      h(
        "time",
        { class: "dim", datetime: task.status.timestamp, title: fullMoment(task.status.timestamp) },
        ago(task.status.timestamp),
      ),
    ),
  );
}
