// Parts of the System view.

import { h, svg } from "../dom.js";
import { ops } from "../api.js";
import { ask } from "../dialog.js";
import { processName } from "../events.js";
import { bytes, duration, number, plural, shortId } from "../format.js";
import { card, empty, facts } from "../pieces.js";
import { link } from "../router.js";
import { state } from "./webhooks.js";

export const SAMPLES = 120; // seconds in a sparkline

export function tile(label, value, about, numbers, tone = "") {
  return h(
    "section",
    { class: "card tile" },
    h("h2", { class: "tile-label" }, label),
    h("p", { class: `tile-value ${tone}` }, value),
    h("p", { class: "dim small" }, about),
    numbers && sparkline(label, numbers),
  );
}

function sparkline(label, numbers) {
  const most = Math.max(...numbers, 0);
  const width = 240;
  const points = numbers.map(
    (each, index) =>
      `${(width - (numbers.length - 1 - index) * (width / SAMPLES)).toFixed(1)},${(31 - (most ? each / most : 0) * 28).toFixed(1)}`,
  );
  return svg(
    "svg",
    {
      viewBox: `0 0 ${width} 32`,
      class: "spark",
      role: "img",
      "aria-label": `${label} over the last two minutes, at most ${most}`,
      preserveAspectRatio: "none",
    },
    svg("line", { x1: 0, x2: width, y1: 31, y2: 31, "vector-effect": "non-scaling-stroke" }),
    svg("polyline", { points: points.join(" "), fill: "none", "vector-effect": "non-scaling-stroke" }),
  );
}

export function deadLetters(list, again) {
  if (!list.length) return null;
  return card(
    `Dead letters (${list.length})`,
    h(
      "ul",
      { class: "plain" },
      list.map((letter) =>
        h(
          "li",
          { class: "row" },
          h("a", { class: "mono", href: link(["tasks", letter.taskId]) }, shortId(letter.taskId)),
          h("span", { class: "dim" }, plural(letter.attempts, "attempt")),
          h("span", { class: "grow-text" }, letter.reason),
          h(
            "button",
            {
              type: "button",
              class: "small",
              onclick: () =>
                ask({
                  title: "Retry this task",
                  text: "Its last message creates a new task.",
                  submit: "Requeue",
                  call: () => ops("POST", `/tasks/${encodeURIComponent(letter.taskId)}/requeue`, { body: {} }),
                  done: again,
                }),
            },
            "Requeue",
          ),
          h(
            "button",
            {
              type: "button",
              class: "quiet small",
              onclick: () =>
                ask({
                  title: "Remove this dead letter",
                  text: "The task stays failed.",
                  submit: "Remove",
                  call: () => ops("DELETE", `/dead/${encodeURIComponent(letter.taskId)}`),
                  done: again,
                }),
            },
            "Remove",
          ),
        ),
      ),
    ),
  );
}

export function failingWebhooks(list) {
  if (!list.length) return null;
  return card(
    `Failing webhooks (${list.length})`,
    h(
      "ul",
      { class: "plain" },
      list.map((hook) =>
        h(
          "li",
          { class: "row" },
          state(hook),
          h("a", { href: link(["tasks", hook.taskId], { tab: "webhooks" }) }, hook.url),
          h("span", { class: "dim" }, hook.error),
        ),
      ),
    ),
  );
}

export function storage({ engine, durability, version, uptimeSeconds, openStreams, detail }, stored) {
  return card(
    "Storage",
    facts([
      ["Engine", engine],
      ["Durability", durability],
      ["Size", bytes(stored.bytes)],
      ["Uptime", duration(uptimeSeconds * 1000)],
      ["Open streams", openStreams],
      ["Keelbolt", version],
      ["State", detail],
    ]),
    h(
      "details",
      {},
      h("summary", {}, "Storage details"),
      facts([
        ["Partitions", number(stored.partitions)],
        ["Logs", `${number(stored.streams)} with ${plural(stored.entries, "entry", "entries")}`],
        ["Blobs", `${number(stored.blobs)}, ${bytes(stored.blobBytes)}`],
        ...Object.entries(stored.engine ?? {}).map(([name, value]) => [
          name.replaceAll("_", " "),
          name.endsWith("bytes") ? bytes(value) : String(value),
        ]),
      ]),
      h(
        "table",
        {},
        h("caption", { class: "sr-only" }, "Records"),
        h(
          "thead",
          {},
          h("tr", {}, h("th", { scope: "col" }, "Records of"), h("th", { scope: "col", class: "right" }, "Count")),
        ),
        h(
          "tbody",
          {},
          Object.entries(stored.records).map(([name, count]) =>
            h("tr", {}, h("td", {}, h("code", {}, name)), h("td", { class: "right" }, number(count))),
          ),
        ),
      ),
    ),
  );
}

export function processesCard({ processes, process }, held) {
  const here = process?.name.split(":").slice(0, 2).join(":");
  const row = ({ name, alive, holds, leaseLeftSeconds }) =>
    h(
      "li",
      { class: "row" },
      h("span", {}, processName(name)),
      name === here && h("span", { class: "tag still" }, "this process"),
      h(
        "span",
        { class: "dim" },
        alive ? `holds ${number(holds)}` : `lease expired ${duration(-leaseLeftSeconds * 1000)} ago`,
      ),
    );
  const dead = processes.filter(({ alive }) => !alive);
  return card(
    "Processes",
    processes.length > dead.length
      ? h("ul", { class: "plain" }, processes.filter(({ alive }) => alive).map(row))
      : h("p", { class: "dim" }, "No live processes."),
    dead.length > 0 && [h("h3", {}, "Dead"), h("ul", { class: "plain" }, dead.map(row))],
    held.length > 0 && [
      h("h3", {}, "Your running tasks"),
      h(
        "ul",
        { class: "plain" },
        held
          .slice(0, 20)
          .map((item) =>
            h(
              "li",
              { class: "row" },
              h("a", { class: "mono", href: link(["tasks", item.taskId]) }, shortId(item.taskId)),
              h("span", { class: "dim" }, `attempt ${item.attempt}, ${processName(item.holder)}`),
            ),
          ),
      ),
    ],
  );
}

export function retention({ retention: policy }) {
  if (!policy) return card("Retention", h("p", {}, "No retention policy: all data is kept."));
  const { every, ...ages } = policy;
  const set = Object.entries(ages).filter(([, seconds]) => seconds !== null);
  return card(
    "Retention",
    set.length
      ? facts(set.map(([name, seconds]) => [name.replaceAll("_", " "), duration(seconds * 1000)]))
      : empty("No limits"),
    h("p", { class: "dim small" }, `Checked every ${duration(every * 1000)}`),
  );
}
