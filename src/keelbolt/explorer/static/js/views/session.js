// One session: its tasks, updates, steering and data.

import { h, replace } from "../dom.js";
import { send } from "../api.js";
import { entryList } from "../entry_list.js";
import { bytes, shorten } from "../format.js";
import { masked, raw, tree } from "../json.js";
import { copyAs, copyButton, empty, facts, problem, tabs, tag, time } from "../pieces.js";
import { link, setQuery } from "../router.js";
import { named, state, tenant } from "../state_calls.js";

export const sessionView = { id: "sessions", title: "Session", open };

const PAGE = 500;
const TONES = { COMPLETE: "good", FAILED: "bad", CANCELLED: "bad", RUNNING: "busy", PAUSED: "ask", PENDING: "still" };

async function open({ main, parts: [, ref], query, signal }) {
  const call = state(`/sessions/${named(ref)}`);
  const session = await send(call, { signal });
  if (signal.aborted) return;
  const counts = (name) =>
    session[name].length ? `${session[name].length}${session.more.includes(name) ? "+" : ""}` : undefined;
  const pages = tabs(
    "The session",
    [
      { id: "tasks", title: "Tasks", count: counts("tasks") },
      { id: "updates", title: "Updates", count: counts("updates") },
      { id: "steering", title: "Steering", count: counts("steering") },
      { id: "traces", title: "Traces", count: counts("traces") },
      { id: "artifacts", title: "Artifacts", count: counts("artifacts") },
      { id: "context", title: "Context" },
      { id: "raw", title: "Raw" },
    ],
    query.tab ?? "tasks",
    (id, panel) => {
      setQuery({ tab: id === "tasks" ? "" : id });
      panel.append(page(id, session, panel, signal) ?? "");
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "stack task-head" },
      crumbs("sessions", session.id),
      h("h1", {}, shorten(session.id, 100)),
      facts([
        ["First seen", session.seen && time(session.seen)],
        ["Waiting patches", session.patches.length || null],
        ["Waiting controls", session.controls.length || null],
        ["Remote tasks", session.bindings.length || null],
      ]),
      h("div", { class: "flush" }, copyAs(call)),
    ),
    pages.element,
  );
  pages.start();
}

function page(id, session, panel, signal) {
  const log = (name, label, nothing) =>
    entryList(session[name], {
      label,
      nothing,
      more: session.more.includes(name),
      all: () => everything(session, name, { label, nothing }, panel, signal),
    });
  switch (id) {
    case "tasks":
      return tasks(session);
    case "updates":
      return log("updates", "Updates", "No updates");
    case "steering":
      return log("steering", "Steering", "No steering");
    case "traces":
      return list(session.traces, "No traces", (each) => [
        h("a", { href: link(["traces", each.ref], { session: session.ref, tenant: tenant() }) }, each.id),
        h("span", { class: "dim" }, bytes(each.size)),
        each.saved && time(each.saved),
      ]);
    case "artifacts":
      return list(session.artifacts, "No artifacts", (each) => [
        h("a", { href: link(["artifacts", each.ref], { tenant: tenant() }) }, each.filename ?? each.id),
        h("span", { class: "dim" }, `${each.mediaType ?? ""} ${bytes(each.size)}`),
      ]);
    case "context":
      return session.context ? tree(session.context, { open: 3 }) : empty("No context");
    default:
      return raw(session, { name: "session.json" });
  }
}

async function everything(session, name, options, panel, signal) {
  const entries = [];
  let after = 0;
  try {
    for (;;) {
      const call = state(`/sessions/${named(session.ref)}/${name}`, { after, limit: PAGE });
      const found = await send(call, { signal, quiet: after > 0 });
      entries.push(...found.entries);
      if (!found.more) break;
      after = found.next;
    }
  } catch (error) {
    if (!signal.aborted)
      replace(
        panel,
        problem(error, () => everything(session, name, options, panel, signal)),
      );
    return;
  }
  replace(panel, entryList(entries, options));
}

function tasks(session) {
  return list(session.tasks, "No tasks", (task) => [
    tag(String(task.status ?? "").toLowerCase(), TONES[String(task.status).toUpperCase()] ?? "still"),
    h("strong", {}, task.description ?? task.task_id ?? task.ref),
    h(
      "span",
      { class: "dim" },
      [task.task_type, task.holder && `runs in ${task.holder}`].filter(Boolean).join(", ").toLowerCase(),
    ),
    task.error && h("span", { class: "bad-ink" }, shorten(String(task.error), 200)),
    h("details", { class: "more" }, h("summary", {}, "All fields"), tree(masked(task), { open: 1 })),
  ]);
}

export function list(items, nothing, cells) {
  if (!items.length) return empty(nothing);
  return h(
    "ul",
    { class: "plain lined" },
    items.map((each) => h("li", { class: "row" }, cells(each))),
  );
}

export function crumbs(tab, id) {
  return h(
    "nav",
    { class: "crumbs", "aria-label": "Where" },
    h(
      "a",
      { href: link(["sessions"], { tab: tab === "sessions" ? "" : tab, tenant: tenant() }) },
      tab[0].toUpperCase() + tab.slice(1),
    ),
    " / ",
    h("span", { class: "mono break" }, id),
    copyButton(id, "Copy id"),
  );
}
