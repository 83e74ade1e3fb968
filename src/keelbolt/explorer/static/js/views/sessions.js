// Data of a StateStore in the same storage: sessions, traces, pauses, memory and artifacts.

import { h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { bytes, number } from "../format.js";
import { pagedTable, since } from "../paged_table.js";
import { empty, field, tabs, time } from "../pieces.js";
import { go, link, setQuery } from "../router.js";
import { state, tenant } from "../state_calls.js";

export const sessionsView = { id: "sessions", title: "Sessions", operator: true, open };

const to = (place, ref, text) => h("a", { href: link([place, ref], { tenant: tenant() }) }, text);

// For each list: the path of its call, its columns, and the text for an empty list.
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
      since(seen),
    ],
    nothing: "No sessions",
  },
  traces: {
    path: "/traces",
    items: "traces",
    heads: ["Trace", "First seen"],
    row: ({ id, ref, seen }) => [to("traces", ref, id), since(seen)],
    nothing: "No traces",
  },
  pauses: {
    path: "/pauses",
    items: "pauses",
    heads: ["Pause", "Reason", "Saved", "Expires", ""],
    row: ({ token, ref, reason, saved, expires, leased }) => [
      to("pauses", ref, token),
      reason ?? "",
      saved ? since(saved) : "",
      expires ? time(expires) : "",
      leased ? "being resumed" : "",
    ],
    nothing: "No pauses are waiting",
  },
  memory: {
    path: "/memory",
    items: "memory",
    heads: ["Key", "Size", "Saved"],
    row: ({ key, ref, saved, size }) => [to("memory", ref, key), bytes(size), since(saved)],
    nothing: "No memory states",
  },
  artifacts: {
    path: "/artifacts",
    items: "artifacts",
    heads: ["Artifact", "Type", "Size", "Created"],
    row: ({ id, ref, filename, mediaType, size, created }) => [
      to("artifacts", ref, filename ?? id),
      mediaType,
      bytes(size),
      since(created),
    ],
    nothing: "No artifacts",
  },
};

async function open({ main, query, signal }) {
  const { tenants } = await send(ops("GET", "/state/tenants"), { signal });
  if (signal.aborted) return;
  const chosen = query.tenant ?? (tenants.includes("default") || !tenants.length ? "" : tenants[0]);
  if (chosen && !query.tenant) setQuery({ tenant: chosen });
  const tenantSelect = h(
    "select",
    { onchange: () => go(["sessions"], { tab: query.tab, tenant: tenantSelect.value }) },
    tenants.map((name) => h("option", { value: name, selected: name === (chosen || "default") }, name)),
  );
  const pages = tabs(
    "Stored data",
    [
      { id: "sessions", title: "Sessions" },
      { id: "traces", title: "Traces" },
      { id: "pauses", title: "Pauses" },
      { id: "memory", title: "Memory" },
      { id: "artifacts", title: "Artifacts" },
    ],
    query.tab ?? "sessions",
    (id, panel) => {
      setQuery({ tab: id === "sessions" ? "" : id });
      const { path, ...list } = LISTS[id];
      pagedTable({ ...list, call: (pageToken) => state(path, { pageToken }) }, panel, signal);
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "view-head" },
      h("h1", {}, "Sessions"),
      tenants.length > 1 && h("div", {}, field("Tenant", tenantSelect)),
    ),
    tenants.length
      ? pages.element
      : empty(
          "No stored state",
          "Sessions, traces and artifacts of a StateStore on this agent's storage appear here.",
        ),
  );
  if (tenants.length) pages.start();
}
