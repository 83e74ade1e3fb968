// One thread of turns: messages, thoughts, tool calls, retrievals, and the memories of the thread.

import { h, replace } from "../dom.js";
import { send } from "../api.js";
import { number, shorten } from "../format.js";
import { raw } from "../json.js";
import { copyAs, copyButton, empty, facts, tabs, tag, time } from "../pieces.js";
import { link, setQuery } from "../router.js";
import { named, tenant, turns } from "../turn_calls.js";
import { entry, remembered } from "../turn_entries.js";
import { gate } from "./gates.js";
import { list } from "./session.js";

export const threadView = { id: "turns", title: "Thread", open };

async function open({ main, parts: [, ref], query, signal }) {
  const call = turns(`/threads/${named(ref)}`);
  const [thread, { shared }] = await Promise.all([send(call, { signal }), send(turns("/shared"), { signal })]);
  if (signal.aborted) return;
  const waiting = thread.gates.filter(({ state }) => state === "open").length;
  const count = (name) =>
    thread[name].length ? `${number(thread[name].length)}${thread.more.includes(name) ? "+" : ""}` : undefined;
  const talk = conversation(thread, shared, query.entry, signal);
  const pages = tabs(
    "The thread",
    [
      { id: "talk", title: "Conversation" },
      { id: "turns", title: "Turns", count: count("turns") },
      { id: "gates", title: "Gates", count: count("gates") },
      { id: "raw", title: "Raw" },
    ],
    query.tab ?? "talk",
    async (id, panel) => {
      setQuery({ tab: id === "talk" ? "" : id });
      if (id === "talk") panel.append(talk.element);
      else if (id === "turns") panel.append(progress(thread));
      else if (id === "gates") panel.append(gates(thread, main, signal));
      else panel.append(raw({ ...thread, shared, entries: talk.entries() }, { name: "thread.json" }));
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "stack task-head" },
      h(
        "nav",
        { class: "crumbs", "aria-label": "Where" },
        h("a", { href: link(["turns"], { tenant: tenant() }) }, "Turns"),
        " / ",
        h("span", { class: "mono break" }, shorten(thread.id, 100)),
        copyButton(thread.id, "Copy id"),
      ),
      h("h1", {}, shorten(thread.id, 100)),
      facts([
        ["Last used", thread.at && time(thread.at)],
        ["Waiting", waiting > 0 ? tag(`at ${waiting === 1 ? "a gate" : `${waiting} gates`}`, "ask") : null],
        ["Tasks", h("a", { href: link(["tasks"], { context: thread.id }) }, "With this context")],
      ]),
      h("div", { class: "flush" }, copyAs(call)),
    ),
    pages.element,
  );
  await talk.load();
  if (!signal.aborted) pages.start();
  if (!signal.aborted) talk.find();
}

// ------------------------------------------------------------------------------------------------------- messages

function conversation(thread, shared, wanted, signal) {
  const path = `/threads/${named(thread.ref)}/entries`;
  const found = []; // oldest first
  const place = h("div", { class: "stack", role: "list", "aria-label": "Entries" });
  const older = h("button", { type: "button", onclick: () => load().catch(failed) }, "Earlier");
  const above = h("div", { class: "row" }, older);
  const failed = (error) => !signal.aborted && above.append(h("span", { class: "bad-ink" }, error.message));
  let token = "";
  const loaded = () => found.some(({ seq }) => String(seq) === wanted);

  async function load() {
    const page = await send(turns(path, { pageToken: token }), { signal });
    token = page.nextPageToken;
    found.unshift(...page.entries.reverse());
    older.hidden = !token;
    show();
  }
  function show() {
    let turn;
    replace(
      place,
      found.map((each) => {
        const began = each.turn !== turn;
        turn = each.turn;
        return entry(thread, each, { began, wanted });
      }),
      !found.length && empty("No messages yet"),
    );
  }
  async function first() {
    await load();
    if (!wanted || loaded() || !token || !/^\d{1,16}$/.test(wanted)) return;
    token = String(Number(wanted) + 1); // an older entry: load the page that ends with it
    found.length = 0;
    await load();
    above.append(h("a", { href: link(["turns", thread.ref], { tenant: tenant() }) }, "Latest"));
  }
  const element = h(
    "div",
    { class: "columns beside" },
    h(
      "section",
      { class: "stack", "aria-label": "Conversation" },
      h("div", { class: "row" }, h("h2", {}, "Conversation"), above),
      place,
      h("div", { class: "flush" }, copyAs(turns(path))),
    ),
    h("section", { class: "stack", "aria-label": "Memory" }, remembered(thread, shared, signal)),
  );
  return {
    element,
    load: first,
    entries: () => found,
    find: () => wanted && document.getElementById(`entry-${wanted}`)?.scrollIntoView({ block: "center" }),
  };
}

// --------------------------------------------------------------------------------------------- turns and their gates

function progress(thread) {
  return list(thread.turns, "No turns", ({ id, state, runs, iterations, at }) => [
    tag(state, { ended: "good", failed: "bad" }[state] ?? "busy"),
    h("span", { class: "mono break" }, id),
    h("span", { class: "dim" }, `${iterations} iteration${iterations === 1 ? "" : "s"} stored`),
    runs > 1 && h("span", { class: "dim" }, `started ${runs} times`),
    at && time(at),
  ]);
}

function gates(thread, main, signal) {
  if (!thread.gates.length) return empty("No gates", "A turn opens a gate with ctx.wait_for.");
  const again = () => open({ main, parts: ["turns", thread.ref], query: { tab: "gates" }, signal });
  return h(
    "div",
    { class: "stack" },
    thread.gates.map((each) => gate(each, again)),
  );
}
