// How the whole stands, for who looks after it: numbers that move, and what went wrong.

import { announce, h, replace, soon } from "../dom.js";
import { ops, send } from "../api.js";
import { processName } from "../events.js";
import { duration, number } from "../format.js";
import { card, copyAs, facts, tag } from "../pieces.js";
import { link } from "../router.js";
import { follow } from "../stream.js";
import { SAMPLES, deadLetters, retention, storage, tile, workersCard } from "./system_cards.js";
import { state } from "./webhooks.js";

export const systemView = { id: "system", title: "System", open };

async function open({ main, signal, me }) {
  const health = await send({ method: "GET", path: "/health", query: {} }, { signal }).catch(
    (error) => error.answer ?? Promise.reject(error),
  );
  if (signal.aborted) return;
  const title = h(
    "div",
    { class: "view-head" },
    h("h1", {}, "System"),
    health.status === "ok" ? tag("Reads and writes work", "good") : tag("The storage does not answer", "bad"),
  );
  if (!me?.allTenants) {
    replace(
      main,
      title,
      facts([
        ["Engine", health.storage?.engine],
        ["Durability", health.storage?.durability],
        ["Up for", duration(health.uptimeSeconds * 1000)],
      ]),
      h(
        "div",
        { class: "card notice-card" },
        h("h2", {}, "The rest is for operators"),
        h(
          "p",
          {},
          me?.authentication
            ? "A token with the role operator:all shows queues, workers, dead letters and storage."
            : "Start the agent with --operators loopback: then whoever sits at its machine is an operator.",
        ),
      ),
    );
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
    samples.push({
      at: Date.now(),
      ended: process?.ended ?? 0,
      p50: process?.p50Seconds,
      p95: process?.p95Seconds,
      running: process?.running ?? 0,
      waiting: queues.tasks?.waiting ?? 0,
      dead: queues.tasks?.dead ?? 0,
      rate: before ? Math.max(0, (process?.ended ?? 0) - before.ended) : 0,
    });
    if (samples.length > SAMPLES) samples.shift();
    draw();
  }

  const draw = soon(() => {
    const { process, queues, workers } = live;
    const minute = samples.slice(-60).reduce((sum, { rate }) => sum + rate, 0);
    replace(
      tiles,
      tile(
        "Waiting",
        number(queues.tasks?.waiting ?? 0),
        "tasks in the queue",
        samples.map(({ waiting }) => waiting),
      ),
      tile(
        "Running",
        `${number(process?.running ?? 0)} of ${number(process?.concurrency ?? 0)}`,
        process ? `in ${processName(process.name)}` : "no worker here",
        samples.map(({ running }) => running),
      ),
      tile(
        "Ended",
        number(process?.ended ?? 0),
        `${number(minute)} in the last minute, ${number(process?.failed ?? 0)} failed`,
        samples.map(({ rate }) => rate),
      ),
      tile(
        "Latency",
        process?.p50Seconds === null || process?.p50Seconds === undefined ? "–" : duration(process.p50Seconds * 1000),
        process?.p95Seconds === null || process?.p95Seconds === undefined
          ? "of the last tasks"
          : `half of them; 95 % within ${duration(process.p95Seconds * 1000)}`,
        samples.map(({ p95 }) => p95 ?? 0),
      ),
      tile(
        "Workers",
        number(workers),
        process ? `incarnations; leases of ${process.leaseSeconds} s` : "incarnations",
        null,
      ),
      tile(
        "Dead letters",
        number(queues.tasks?.dead ?? 0),
        "given up after their last attempt",
        samples.map(({ dead }) => dead),
        queues.tasks?.dead ? "bad" : "",
      ),
    );
  });

  async function lists() {
    const [stored, dead, hooks, held] = await Promise.all([
      send(ops("GET", "/system/storage"), { signal }),
      send(ops("GET", "/dead"), { signal }),
      send(ops("GET", "/webhooks", { query: { state: "failed" } }), { signal }),
      send(ops("GET", "/work", { query: { state: "held" } }), { signal }),
    ]);
    replace(
      letters,
      deadLetters(dead.dead, lists),
      hooks.webhooks.length > 0 &&
        card(
          "Webhooks that were given up",
          h(
            "ul",
            { class: "plain" },
            hooks.webhooks.map((hook) =>
              h(
                "li",
                { class: "row" },
                state(hook),
                h("a", { href: link(["tasks", hook.taskId], { tab: "webhooks" }) }, hook.url),
                h("span", { class: "dim" }, hook.error),
              ),
            ),
          ),
        ),
    );
    replace(
      rest,
      storage(system, stored),
      h(
        "div",
        { class: "stack" },
        workersCard(system, held.work),
        retention(system),
        card("This page", h("p", { class: "dim" }, "Its numbers are this call and a stream."), copyAs(call)),
      ),
    );
  }

  sample();
  await lists();
  const ticking = setInterval(sample, 1000);
  signal.addEventListener("abort", () => clearInterval(ticking));
  let known = live.queues.tasks?.dead ?? 0;
  await follow({
    call: () => ops("GET", "/system/events"),
    signal,
    onOpen: async () => {
      system = await send(call, { signal });
    },
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
