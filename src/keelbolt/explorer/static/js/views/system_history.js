// Figures of the last hours, which all processes record in the storage.

import { h, replace, svg } from "../dom.js";
import { ops, send } from "../api.js";
import { duration, number } from "../format.js";
import { card } from "../pieces.js";

const AGAIN = 60000; // milliseconds between two requests
const HOURS = [1, 6, 24, 48];
const WIDTH = 320;
const HEIGHT = 88;

export function history(signal) {
  const plots = h("div", { class: "plots" });
  const choice = h(
    "select",
    { "aria-label": "Hours", class: "hours", onchange: look },
    HOURS.map((hours) => h("option", { value: hours, selected: hours === 6 }, hours === 1 ? "1 hour" : `${hours} hours`)),
  );
  async function look() {
    const hours = Number(choice.value);
    const found = await send(ops("GET", "/system/history", { query: { hours } }), { signal }).catch(() => null);
    if (!found || signal.aborted || hours !== Number(choice.value)) return;
    const { buckets, bucketSeconds } = found;
    const end = Date.now() / 1000;
    const plot = (title, lines, show) => drawn(title, lines, show, buckets, end - hours * 3600, end, bucketSeconds);
    const minutes = bucketSeconds / 60;
    const seconds = (value) => duration(value * 1000);
    const rate = (value) => number(Math.round(value * 10) / 10);
    replace(
      plots,
      buckets.length === 0 && h("p", { class: "dim" }, "No data yet: processes write their numbers once a minute."),
      plot("Tasks ended per minute", [["all", (b) => b.ended / minutes], ["failed", (b) => b.failed / minutes]], rate),
      plot("Duration of tasks", [["p50", (b) => b.p50Seconds], ["p95", (b) => b.p95Seconds]], seconds),
      plot("Queue", [["waiting", (b) => b.waiting], ["running", (b) => b.running]], number),
      plot("Longest wait", [["oldest", (b) => b.oldestSeconds]], seconds),
      plot("Dead letters", [["dead", (b) => b.dead]], number),
    );
  }
  look();
  const looking = setInterval(look, AGAIN);
  signal.addEventListener("abort", () => clearInterval(looking));
  return h("div", { class: "history" }, card("Last hours", h("div", { class: "row" }, choice), plots));
}

// The line is interrupted where a bucket is missing.
function drawn(title, lines, show, buckets, start, end, step) {
  if (!buckets.length) return null;
  const values = lines.flatMap(([, read]) => buckets.map(read)).filter((value) => value !== null);
  const most = Math.max(...values, 0);
  const x = (at) => ((at + step / 2 - start) / (end - start)) * WIDTH;
  const y = (value) => HEIGHT - 1 - (most ? value / most : 0) * (HEIGHT - 4);
  const path = (read) => {
    let before = null;
    return buckets
      .filter((bucket) => read(bucket) !== null)
      .map((bucket) => {
        const joined = before !== null && bucket.at - before <= step;
        before = bucket.at;
        return `${joined ? "L" : "M"}${x(bucket.at).toFixed(1)} ${y(read(bucket)).toFixed(1)}h1`;
      })
      .join("");
  };
  const last = (read) => read(buckets.at(-1));
  return h(
    "figure",
    { class: "plot" },
    h("figcaption", {}, title, h("span", { class: "dim small" }, `at most ${show(most)}`)),
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, at most ${show(most)}`, preserveAspectRatio: "none" },
      svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1, "vector-effect": "non-scaling-stroke" }),
      lines.map(([name, read], index) => svg("path", { d: path(read), class: `line-${index}`, "vector-effect": "non-scaling-stroke" }, svg("title", {}, name))),
    ),
    h(
      "p",
      { class: "small" },
      lines.map(([name, read], index) =>
        h("span", { class: `key key-${index}` }, `${name} ${last(read) === null ? "–" : show(last(read))}`),
      ),
    ),
  );
}
