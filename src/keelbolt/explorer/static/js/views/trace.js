// One trace: the events of its flow, the steps of its planner, and the resulting trajectories.

import { h, replace } from "../dom.js";
import { chart } from "../chart.js";
import { send } from "../api.js";
import { entryList } from "../entry_list.js";
import { bytes, number, plural, shorten } from "../format.js";
import { raw, tree } from "../json.js";
import { card, copyAs, empty, facts, tabs, time } from "../pieces.js";
import { link, setQuery } from "../router.js";
import { named, state, tenant } from "../state_calls.js";
import { traceBars } from "../trace_bars.js";
import { crumbs } from "./session.js";

export const traceView = { id: "sessions", title: "Trace", open };

const PAGE = 500;
const DRAWN = 2000; // maximum number of entries of each log

async function open({ main, parts: [, ref], query, signal }) {
  const call = state(`/traces/${named(ref)}`, { session: query.session });
  const trace = await send(call, { signal });
  if (signal.aborted) return;
  const count = (name) =>
    trace[name].length ? `${trace[name].length}${trace.more.includes(name) ? "+" : ""}` : undefined;
  const start = trace.trajectories.length && !trace.events.length ? "trajectories" : "events";
  const pages = tabs(
    "The trace",
    [
      { id: "events", title: "Events", count: count("events") },
      { id: "planner", title: "Planner", count: count("plannerEvents") },
      { id: "waterfall", title: "Waterfall" },
      { id: "trajectories", title: "Trajectories", count: count("trajectories") },
      { id: "bindings", title: "Remote tasks", count: count("bindings") },
      { id: "raw", title: "Raw" },
    ],
    query.tab ?? start,
    (id, panel) => {
      setQuery({ tab: id === start ? "" : id });
      panel.append(page(id, trace, panel, signal));
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "stack task-head" },
      crumbs("traces", trace.id),
      h("h1", {}, shorten(trace.id, 100)),
      facts([["First seen", trace.seen && time(trace.seen)]]),
      h("div", { class: "flush" }, copyAs(call)),
    ),
    pages.element,
  );
  pages.start();
}

function page(id, trace, panel, signal) {
  const log = (name, path, label, nothing) =>
    entryList(trace[name], {
      label,
      nothing,
      more: trace.more.includes(name),
      all: () => everything(trace, path, { label, nothing }, panel, signal),
    });
  switch (id) {
    case "events":
      return log("events", "events", "Events of the flow", "No events");
    case "planner":
      return log("plannerEvents", "planner-events", "Events of the planner", "No planner events");
    case "waterfall":
      return waterfall(trace, signal);
    case "trajectories":
      return trace.trajectories.length
        ? h("div", { class: "stack" }, trace.trajectories.map(trajectory))
        : empty("No trajectories");
    case "bindings":
      return trace.bindings.length ? tree(trace.bindings, { open: 2 }) : empty("No remote tasks");
    default:
      return raw(trace, { name: "trace.json" });
  }
}

function trajectory({ session, sessionRef, saved, size, trajectory: content }) {
  const steps = Array.isArray(content?.steps) ? content.steps : [];
  return card(
    shorten(String(content?.query ?? "Trajectory"), 120),
    facts([
      ["Session", h("a", { href: link(["sessions", sessionRef], { tenant: tenant() }) }, session)],
      ["Saved", saved && time(saved)],
      ["Size", bytes(size)],
      ["Steps", plural(steps.length, "step")],
    ]),
    h("ol", { class: "steps" }, steps.map(step)),
    h("details", { class: "more" }, h("summary", {}, "All fields"), tree(content, { open: 1 })),
  );
}

function step(each, index) {
  const action = each?.action ?? {};
  const name = action.next_node ?? action.tool ?? action.name ?? `Step ${index + 1}`;
  return h(
    "li",
    {},
    h("strong", {}, String(name)),
    (action.thought ?? each?.thought) && h("p", { class: "dim" }, String(action.thought ?? each.thought)),
    each?.error && h("p", { class: "bad-ink" }, String(each.error)),
    h("details", { class: "more" }, h("summary", {}, "Observation"), tree(each, { open: 2 })),
  );
}

async function everything(trace, path, options, panel, signal) {
  replace(panel, entryList(await all(trace, path, signal), options));
}

async function all(trace, path, signal, most = Infinity) {
  const entries = [];
  let after = 0;
  while (entries.length < most) {
    const call = state(`/traces/${named(trace.ref)}/${path}`, { after, limit: PAGE });
    const found = await send(call, { signal, quiet: after > 0 });
    entries.push(...found.entries);
    if (!found.more) break;
    after = found.next;
  }
  return entries;
}

function waterfall(trace, signal) {
  const box = h("div", {}, h("p", { class: "dim pulse" }, "Loading…"));
  const draw = async () => {
    const [flow, planner] = await Promise.all(
      ["events", "planner-events"].map((path) => all(trace, path, signal, DRAWN)),
    );
    const entries = [
      ...flow.map((each) => ({ ...each, of: "flow" })),
      ...planner.map((each) => ({ ...each, of: "planner" })),
    ];
    const list = traceBars(entries);
    const about = `${plural(flow.length, "event")} of the flow, ${number(planner.length)} of the planner`;
    replace(box, list.length ? chart(list, about, () => {}) : empty("Nothing to draw"));
  };
  draw().catch((error) => !signal.aborted && replace(box, empty("Loading failed", error.message)));
  return box;
}
