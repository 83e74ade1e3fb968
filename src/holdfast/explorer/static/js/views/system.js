// How the whole stands, for who looks after it: numbers that move, and what went wrong.

import { announce, h, replace, soon, svg } from "../dom.js";
import { ops, send } from "../api.js";
import { ask } from "../dialog.js";
import { processName } from "../events.js";
import { bytes, duration, number, plural, shortId } from "../format.js";
import { card, copyAs, empty, facts, tag } from "../pieces.js";
import { link } from "../router.js";
import { follow } from "../stream.js";
import { state } from "./webhooks.js";

export const systemView = { id: "system", title: "System", open };

const SAMPLES = 120; // seconds in a sparkline

async function open({ main, signal, me }) {
  const health = await send({ method: "GET", path: "/health", query: {} }, { signal }).catch((error) => error.answer ?? Promise.reject(error));
  if (signal.aborted) return;
  const title = h("div", { class: "view-head" }, h("h1", {}, "System"), health.status === "ok" ? tag("Reads and writes work", "good") : tag("The storage does not answer", "bad"));
  if (!me?.operator) {
    replace(main, title,
      facts([["Engine", health.storage?.engine], ["Durability", health.storage?.durability], ["Up for", duration(health.uptimeSeconds * 1000)]]),
      h("div", { class: "card notice-card" }, h("h2", {}, "The rest is for operators"),
        h("p", {}, me?.authentication ? "A token with the role operator shows queues, workers, dead letters and storage." : "Start the agent with --operators loopback: then whoever sits at its machine is an operator.")));
    return;
  }
  const call = ops("GET", "/system");
  let system = await send(call, { signal });
  const samples = [];
  let live = system;
  const tiles = h("div", { class: "tiles" });
  const rest = h("div", { class: "columns" });
  const letters = h("div", { class: "letters" });
  replace(main, title, tiles, letters, rest);

  // The server tells when a number changes; the page's own clock draws the time between.
  function sample() {
    const before = samples.at(-1);
    const { process, queues } = live;
    samples.push({ at: Date.now(), ended: process?.ended ?? 0, p50: process?.p50Seconds, p95: process?.p95Seconds, running: process?.running ?? 0, waiting: queues.tasks?.waiting ?? 0, dead: queues.tasks?.dead ?? 0, rate: before ? Math.max(0, (process?.ended ?? 0) - before.ended) : 0 });
    if (samples.length > SAMPLES) samples.shift();
    draw();
  }

  const draw = soon(() => {
    const { process, queues, workers } = live;
    const minute = samples.slice(-60).reduce((sum, { rate }) => sum + rate, 0);
    replace(tiles,
      tile("Waiting", number(queues.tasks?.waiting ?? 0), "tasks in the queue", samples.map(({ waiting }) => waiting)),
      tile("Running", `${number(process?.running ?? 0)} of ${number(process?.concurrency ?? 0)}`, process ? `in ${processName(process.name)}` : "no worker here", samples.map(({ running }) => running)),
      tile("Ended", number(process?.ended ?? 0), `${number(minute)} in the last minute, ${number(process?.failed ?? 0)} failed`, samples.map(({ rate }) => rate)),
      tile("Latency", process?.p50Seconds === null || process?.p50Seconds === undefined ? "–" : duration(process.p50Seconds * 1000), process?.p95Seconds === null || process?.p95Seconds === undefined ? "of the last tasks" : `half of them; 95 % within ${duration(process.p95Seconds * 1000)}`, samples.map(({ p95 }) => p95 ?? 0)),
      tile("Workers", number(workers), process ? `incarnations; leases of ${process.leaseSeconds} s` : "incarnations", null),
      tile("Dead letters", number(queues.tasks?.dead ?? 0), "given up after their last attempt", samples.map(({ dead }) => dead), queues.tasks?.dead ? "bad" : ""));
  });

  async function lists() {
    const [dead, hooks, held] = await Promise.all([
      send(ops("GET", "/dead"), { signal }), send(ops("GET", "/webhooks", { query: { state: "failed" } }), { signal }), send(ops("GET", "/work", { query: { state: "held" } }), { signal }),
    ]);
    replace(letters, deadLetters(dead.dead, lists), hooks.webhooks.length > 0 && card("Webhooks that were given up", h("ul", { class: "plain" }, hooks.webhooks.map((hook) => h("li", { class: "row" },
      state(hook), h("a", { href: link(["tasks", hook.taskId], { tab: "webhooks" }) }, hook.url), h("span", { class: "dim" }, hook.error))))));
    replace(rest, storage(system), h("div", { class: "stack" }, workersCard(system, held.work), retention(system), card("This page", h("p", { class: "dim" }, "All of it is one call and one stream."), copyAs(call))));
  }

  sample();
  await lists();
  const ticking = setInterval(sample, 1000);
  signal.addEventListener("abort", () => clearInterval(ticking));
  let known = live.queues.tasks?.dead ?? 0;
  await follow({
    call: () => ops("GET", "/system/events"), signal, onOpen: async () => { system = await send(call, { signal }); },
    onEvent: (numbers) => {
      live = { ...live, ...numbers };
      const dead = live.queues.tasks?.dead ?? 0;
      if (dead > known) announce("A task became a dead letter");
      if (dead !== known) lists().catch(() => {});
      known = dead;
      draw();
    },
  });
}

function tile(label, value, about, numbers, tone = "") {
  return h("section", { class: "card tile" }, h("h2", { class: "tile-label" }, label), h("p", { class: `tile-value ${tone}` }, value), h("p", { class: "dim small" }, about), numbers && sparkline(label, numbers));
}

function sparkline(label, numbers) {
  const most = Math.max(...numbers, 0);
  const width = 240;
  const points = numbers.map((each, index) => `${(width - (numbers.length - 1 - index) * (width / SAMPLES)).toFixed(1)},${(31 - (most ? each / most : 0) * 28).toFixed(1)}`);
  return svg("svg", { viewBox: `0 0 ${width} 32`, class: "spark", role: "img", "aria-label": `${label} over the last two minutes, at most ${most}`, preserveAspectRatio: "none" },
    svg("line", { x1: 0, x2: width, y1: 31, y2: 31, "vector-effect": "non-scaling-stroke" }),
    svg("polyline", { points: points.join(" "), fill: "none", "vector-effect": "non-scaling-stroke" }));
}

function deadLetters(list, again) {
  if (!list.length) return null;
  return card(`Dead letters (${list.length})`, h("ul", { class: "plain" }, list.map((letter) => h("li", { class: "row" },
    h("a", { class: "mono", href: link(["tasks", letter.taskId]) }, shortId(letter.taskId)), h("span", { class: "dim" }, plural(letter.attempts, "attempt")), h("span", { class: "grow-text" }, letter.reason),
    h("button", { type: "button", class: "small", onclick: () => ask({ title: "Try it anew", text: "Its last message makes a new task.", submit: "Requeue", call: () => ops("POST", `/tasks/${encodeURIComponent(letter.taskId)}/requeue`, { body: {} }), done: again }) }, "Requeue"),
    h("button", { type: "button", class: "quiet small", onclick: () => ask({ title: "Forget this dead letter", text: "The task stays, and stays failed.", submit: "Forget", call: () => ops("DELETE", `/dead/${encodeURIComponent(letter.taskId)}`), done: again }) }, "Forget")))));
}

function storage({ engine, durability, storage: stored, version, uptimeSeconds, openStreams, detail }) {
  return card("Storage",
    facts([["Engine", engine], ["Durability", durability], ["Size", bytes(stored.bytes)], ["Partitions", number(stored.partitions)], ["Logs", `${number(stored.streams)} with ${plural(stored.entries, "entry", "entries")}`], ["Blobs", `${number(stored.blobs)}, ${bytes(stored.blobBytes)}`], ["Up for", duration(uptimeSeconds * 1000)], ["Open streams", openStreams], ["Holdfast", version], ["State", detail]]),
    h("table", {}, h("caption", { class: "sr-only" }, "Records"), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Records of"), h("th", { scope: "col", class: "right" }, "Count"))), h("tbody", {}, Object.entries(stored.records).map(([name, count]) => h("tr", {}, h("td", {}, h("code", {}, name)), h("td", { class: "right" }, number(count)))))),
    facts(Object.entries(stored.engine ?? {}).map(([name, value]) => [name.replaceAll("_", " "), name.endsWith("bytes") ? bytes(value) : String(value)])));
}

function workersCard({ holders, process }, held) {
  return card("Workers",
    process && h("p", {}, "This one: ", h("strong", { title: process.name }, processName(process.name))),
    Object.keys(holders).length > 0 ? h("ul", { class: "plain" }, Object.entries(holders).map(([name, count]) => h("li", { class: "row" }, h("span", { title: name }, processName(name)), h("span", { class: "dim" }, `holds ${number(count)}`)))) : h("p", { class: "dim" }, "Nobody holds anything right now."),
    held.length > 0 && [h("h3", {}, "Your tasks that run"), h("ul", { class: "plain" }, held.slice(0, 20).map((item) => h("li", { class: "row" },
      h("a", { class: "mono", href: link(["tasks", item.taskId]) }, shortId(item.taskId)), h("span", { class: "dim" }, `attempt ${item.attempt}, ${processName(item.holder)}`))))]);
}

function retention({ retention: policy }) {
  if (!policy) return card("Retention", h("p", {}, "Everything is kept for ever: no policy is set."));
  const { every, ...ages } = policy;
  const set = Object.entries(ages).filter(([, seconds]) => seconds !== null);
  return card("Retention", set.length ? facts(set.map(([name, seconds]) => [name.replaceAll("_", " "), duration(seconds * 1000)])) : empty("Nothing is erased"), h("p", { class: "dim small" }, `Looked at every ${duration(every * 1000)}`));
}

