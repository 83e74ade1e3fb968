// The service as a whole, for operators: live figures, the last hours, and errors.

import { announce, h, replace, soon } from "../dom.js";
import { ops, send } from "../api.js";
import { duration, number } from "../format.js";
import { card, copyAs, facts, tag } from "../pieces.js";
import { follow } from "../stream.js";
import { SAMPLES, deadLetters, failingWebhooks, processesCard, retention, storage, tile } from "./system_cards.js";
import { history } from "./system_history.js";

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
    health.status === "ok" ? tag("Reads and writes work", "good") : tag("The storage does not respond", "bad"),
  );
  if (!me?.allTenants) {
    replace(
      main,
      title,
      facts([
        ["Engine", health.storage?.engine],
        ["Durability", health.storage?.durability],
        ["Uptime", duration(health.uptimeSeconds * 1000)],
      ]),
      h(
        "div",
        { class: "card notice-card" },
        h("h2", {}, "More is visible to operators"),
        h(
          "p",
          {},
          me?.authentication
            ? "A token with the role operator:all shows queues, processes, dead letters and storage."
            : "Start the agent with --operators loopback: then callers on its machine are operators.",
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
  replace(main, title, tiles, history(signal), letters, rest);

  // The server sends figures when they change; the page draws a sample per second from its own clock.
  function sample() {
    const { queues } = live;
    samples.push({
      waiting: queues.tasks?.waiting ?? 0,
      running: queues.tasks?.held ?? 0,
      dead: queues.tasks?.dead ?? 0,
      hooks: queues.webhooks?.waiting ?? 0,
    });
    if (samples.length > SAMPLES) samples.shift();
    draw();
  }

  const draw = soon(() => {
    const { process, queues, workers } = live;
    const last = (name) => samples.map((each) => each[name]);
    const dead = queues.tasks?.dead ?? 0;
    replace(
      tiles,
      tile("Waiting", number(queues.tasks?.waiting ?? 0), "tasks without a process", last("waiting")),
      tile("Running", number(queues.tasks?.held ?? 0), "tasks in all processes", last("running")),
      tile("Dead letters", number(dead), "failed after the last attempt", last("dead"), dead ? "bad" : ""),
      tile("Webhooks", number(queues.webhooks?.waiting ?? 0), "waiting deliveries", last("hooks")),
      tile("Leases", number(workers), process ? `of ${process.leaseSeconds} s, renewed by heartbeats` : "of processes"),
    );
  });

  async function lists() {
    const all = { query: { all: "true" } };
    const [stored, dead, hooks, held] = await Promise.all([
      send(ops("GET", "/system/storage"), { signal }),
      send(ops("GET", "/dead"), { signal }),
      send(ops("GET", "/webhooks", { query: { ...all.query, state: "failing" } }), { signal }),
      send(ops("GET", "/work", { query: { state: "held" } }), { signal }),
    ]);
    replace(letters, deadLetters(dead.dead, lists), failingWebhooks(hooks.webhooks));
    replace(
      rest,
      h("div", { class: "stack" }, processesCard(system, held.work), retention(system)),
      h(
        "div",
        { class: "stack" },
        storage(system, stored),
        card("This page", h("p", { class: "dim" }, "The numbers come from this call and a stream."), copyAs(call)),
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
