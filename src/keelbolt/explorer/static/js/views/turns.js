// Stored turns: their threads, and the gates at which they wait.

import { h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { plural, shorten } from "../format.js";
import { pagedTable, since } from "../paged_table.js";
import { empty, field, tabs } from "../pieces.js";
import { go, link, setQuery } from "../router.js";
import { tenant, turns } from "../turn_calls.js";
import { showGates } from "./gates.js";

export const turnsView = { id: "turns", title: "Turns", operator: true, open };

const THREADS = {
  items: "threads",
  heads: ["Thread", "Last message", "Last used"],
  row: ({ id, ref, last, at }) => [
    h("a", { href: link(["turns", ref], { tenant: tenant() }), class: "break" }, shorten(id, 100)),
    h("span", { class: "break" }, last && lastMessage(last)),
    since(at),
  ],
  nothing: ["No threads", "Threads of a durable_storage on this agent's storage appear here."],
};

const lastMessage = ({ role, text, files }) => [
  h("span", { class: "dim" }, `${role}: `),
  shorten([text, files && plural(files, "file")].filter(Boolean).join(", "), 140),
];

async function open({ main, query, signal }) {
  const [{ tenants }, { gates }] = await Promise.all([
    send(ops("GET", "/turns/tenants"), { signal }),
    send(ops("GET", "/gates"), { signal }),
  ]);
  if (signal.aborted) return;
  if (!query.tenant && tenants.length) setQuery({ tenant: tenants[0].ref });
  const tenantSelect = h(
    "select",
    { onchange: () => go(["turns"], { tenant: tenantSelect.value }) },
    tenants.map(({ id, ref }) => h("option", { value: ref, selected: ref === tenant() }, shorten(id, 60))),
  );
  const pages = tabs(
    "Turns",
    [
      { id: "threads", title: "Threads" },
      { id: "open", title: "Waiting", count: gates.length || undefined },
      { id: "settled", title: "Settled" },
    ],
    query.tab ?? "threads",
    (id, panel) => {
      setQuery({ tab: id === "threads" ? "" : id });
      if (id !== "threads") showGates(id, panel, signal);
      else if (tenants.length)
        pagedTable({ ...THREADS, call: (pageToken) => turns("/threads", { pageToken }) }, panel, signal);
      else panel.append(empty(...THREADS.nothing));
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "view-head" },
      h("h1", {}, "Turns"),
      tenants.length > 1 && h("div", {}, field("Tenant", tenantSelect)),
    ),
    pages.element,
  );
  pages.start();
}
