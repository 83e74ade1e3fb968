// What agents keep beside their tasks: sessions, traces, memory and artifacts of a StateStore in the same storage.

import { h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { ago, bytes, fullMoment, number } from "../format.js";
import { empty, field, tabs } from "../pieces.js";
import { go, link, setQuery } from "../router.js";
import { state, tenant } from "../state_calls.js";

export const sessionsView = { id: "sessions", title: "Sessions", operator: true, open };

const time = (text) => text && h("time", { datetime: text, title: fullMoment(text), class: "dim" }, ago(text));
const to = (place, ref, text) => h("a", { href: link([place, ref], { tenant: tenant() }) }, text);

// For each list: where it is asked for, what its rows are, and what is said when it is empty.
const LISTS = {
  sessions: {
    path: "/sessions",
    items: "sessions",
    heads: ["Session", "Tasks", "Updates", "Steering", "First seen"],
    row: ({ id, ref, seen, counts }) => [
      to("sessions", ref, id),
      number(counts.tasks),
      number(counts.updates),
      number(counts.steering),
      time(seen),
    ],
    nothing: "No sessions",
  },
  traces: {
    path: "/traces",
    items: "traces",
    heads: ["Trace", "First seen"],
    row: ({ id, ref, seen }) => [to("traces", ref, id), time(seen)],
    nothing: "No traces",
  },
  memory: {
    path: "/memory",
    items: "memory",
    heads: ["Key", "Size", "Saved"],
    row: ({ key, ref, saved, size }) => [to("memory", ref, key), bytes(size), time(saved)],
    nothing: "No memory states",
  },
  artifacts: {
    path: "/artifacts",
    items: "artifacts",
    heads: ["Artifact", "Type", "Size", "Made"],
    row: ({ id, ref, filename, mediaType, size, created }) => [
      to("artifacts", ref, filename ?? id),
      mediaType,
      bytes(size),
      time(created),
    ],
    nothing: "No artifacts",
  },
};

async function open({ main, query, signal }) {
  const { tenants } = await send(ops("GET", "/state/tenants"), { signal });
  if (signal.aborted) return;
  const chosen = query.tenant ?? (tenants.includes("default") || !tenants.length ? "" : tenants[0]);
  if (chosen && !query.tenant) setQuery({ tenant: chosen });
  const whose = h(
    "select",
    { onchange: () => go(["sessions"], { tab: query.tab, tenant: whose.value }) },
    tenants.map((name) => h("option", { value: name, selected: name === (chosen || "default") }, name)),
  );
  const pages = tabs(
    "What is kept",
    [
      { id: "sessions", title: "Sessions" },
      { id: "traces", title: "Traces" },
      { id: "memory", title: "Memory" },
      { id: "artifacts", title: "Artifacts" },
    ],
    query.tab ?? "sessions",
    (id, panel) => {
      setQuery({ tab: id === "sessions" ? "" : id });
      show(LISTS[id], panel, signal);
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "view-head" },
      h("h1", {}, "Sessions"),
      tenants.length > 1 && h("div", {}, field("Tenant", whose)),
    ),
    tenants.length
      ? pages.element
      : empty(
          "No state is kept here",
          "A StateStore on this agent's storage shows its sessions, traces and artifacts.",
        ),
  );
  if (tenants.length) pages.start();
}

async function show({ path, items, heads, row, nothing }, panel, signal) {
  const rows = h("tbody");
  const more = h("button", { type: "button", onclick: load }, "More");
  const table = h(
    "table",
    {},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        heads.map((head) => h("th", { scope: "col" }, head)),
      ),
    ),
    rows,
  );
  let token = "";
  async function load() {
    const page = await send(state(path, { pageToken: token }), { signal });
    if (signal.aborted) return;
    token = page.nextPageToken;
    rows.append(
      ...page[items].map((each) =>
        h(
          "tr",
          {},
          row(each).map((cell) => h("td", {}, cell)),
        ),
      ),
    );
    more.hidden = !token;
    replace(panel, rows.childElementCount ? h("div", { class: "table-place" }, table) : empty(nothing), more);
  }
  more.hidden = true;
  await load().catch((error) => {
    if (!signal.aborted) replace(panel, empty("That could not be read", error.message));
  });
}
