// All tasks: filtered by the address, page by page, and changing while one looks.

import { announce, h, later, replace, soon } from "../dom.js";
import { ops, send } from "../api.js";
import { agentCard } from "../agent_card.js";
import { STATES, ago, fullMoment, number, plural, shortId, stateLabel, stateName } from "../format.js";
import { badge, empty, problem, tag } from "../pieces.js";
import { here, link, setQuery } from "../router.js";
import { follow } from "../stream.js";
import { filterControls } from "./task_filters.js";

export const tasksView = { id: "tasks", title: "Tasks", open };

const PAGE = 50;
const FILTERS = ["state", "context", "skill", "text", "since", "until", "tenant", "owner", "askedTenant"];

async function open({ main, query, signal, me }) {
  let shown = new Map(); // id → task, as they stand in the list
  let token = "";
  let fresh = new Set(); // changed while one looked
  let answer = null;
  let oldest = ""; // up to here the pages go
  let loading = new AbortController();

  const filters = () =>
    Object.fromEntries(FILTERS.map((name) => [name, here().query[name]]).filter(([, value]) => value));
  const whose = () =>
    Object.fromEntries(
      ["tenant", "owner", "askedTenant"]
        .map((name) => [name, here().query[name]])
        .filter(([, value]) => value !== undefined),
    );
  const counts = h("div", { class: "chips", role: "group", "aria-label": "By state" });
  const rows = h("tbody");
  const table = h(
    "table",
    { class: "tasks" },
    h("caption", { class: "sr-only" }, "Tasks, newest status first"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["State", "Began with", "Skill", "Context", "Turn", "Changed"].map((each) => h("th", { scope: "col" }, each)),
      ),
    ),
    rows,
  );
  const note = h("p", { class: "dim", "aria-live": "polite" });
  const place = h("div", { class: "table-place" }, table);
  const more = h("button", { type: "button", onclick: () => load(false) }, "More");
  const card = await agentCard().catch(() => ({}));
  const controls = await filterControls({ query, card, me, change });
  if (signal.aborted) return;
  replace(
    main,
    h("div", { class: "view-head" }, h("h1", {}, "Tasks"), note),
    counts,
    controls,
    place,
    h("div", { class: "row after" }, more),
  );

  function change(changes) {
    setQuery(changes);
    load(true);
  }

  async function load(anew, first = false) {
    loading.abort(); // who types on asks anew: what was asked before is of no use
    loading = new AbortController();
    const wanted = loading.signal;
    more.disabled = true;
    let page;
    try {
      page = await send(
        ops("GET", "/tasks", { query: { ...filters(), pageSize: PAGE, pageToken: anew ? "" : token } }),
        { signal: AbortSignal.any([signal, wanted]) },
      );
    } catch (error) {
      if (first) throw error; // the whole view is tried again
      if (!signal.aborted && !wanted.aborted)
        replace(
          place,
          problem(error, () => load(anew)),
        );
      return;
    }
    if (wanted.aborted) return;
    if (anew) {
      shown = new Map();
      fresh = new Set();
    }
    answer = page;
    for (const task of answer.tasks) shown.set(task.id, task);
    token = answer.nextPageToken;
    oldest = answer.tasks.at(-1)?.status.timestamp ?? oldest;
    more.disabled = false;
    draw();
  }

  const draw = soon(() => {
    if (signal.aborted || !answer) return;
    const chosen = here().query.state ?? "";
    const all = Object.values(answer.states).reduce((sum, each) => sum + each, 0);
    replace(
      counts,
      [
        ["", "All", all, "still"],
        ...Object.entries(STATES).map(([name, { label, tone }]) => [name, label, answer.states[name] ?? 0, tone]),
      ]
        .filter(([name, , count]) => count || name === chosen || name === "")
        .map(([name, label, count, tone]) =>
          h(
            "button",
            {
              type: "button",
              class: `chip ${tone}`,
              "aria-pressed": String(name === chosen),
              onclick: () => change({ state: name }),
            },
            label,
            h("span", { class: "count" }, number(count)),
          ),
        ),
    );
    const searched = Boolean(filters().text || filters().skill);
    note.textContent = searched
      ? `${plural(shown.size, "task")} found so far${token ? "" : ", all looked through"}`
      : `${plural(answer.total, "task")}${answer.exact ? "" : " or more"}`;
    more.hidden = !token;
    more.textContent = searched ? "Look further" : "More";
    const list = [...shown.values()].sort((one, other) => other.status.timestamp.localeCompare(one.status.timestamp));
    const focused = document.activeElement?.closest?.("tr")?.dataset.id;
    replace(rows, list.map(row));
    replace(place, list.length ? table : nothing());
    if (focused) rows.querySelector(`tr[data-id="${CSS.escape(focused)}"] a`)?.focus();
  });

  function nothing() {
    if (token) return empty("Nothing found among the newest", "Look further: older tasks may match.");
    if (Object.keys(filters()).length) {
      return h(
        "div",
        {},
        empty("No task matches", "Take a filter away, or look at all of them."),
        h("div", { class: "row center" }, h("a", { class: "button", href: link(["tasks"]) }, "All tasks")),
      );
    }
    return h(
      "div",
      {},
      empty("No tasks yet", "The first message makes one."),
      h("div", { class: "row center" }, h("a", { class: "button primary", href: link(["try"]) }, "Try the agent")),
    );
  }

  function row(task) {
    const href = link(["tasks", task.id], whose());
    return h(
      "tr",
      {
        dataset: { id: task.id },
        class: fresh.has(task.id) ? "fresh" : "",
        onclick: (event) => {
          if (!event.target.closest("a, button") && !getSelection().toString()) location.hash = href;
        },
      },
      h("td", {}, badge(task.status.state)),
      h(
        "td",
        { class: "said" },
        h(
          "a",
          { href, title: task.id, "aria-label": `${task.said || "Task"} (${shortId(task.id)})` },
          task.said || h("span", { class: "dim" }, "(no words)"),
        ),
        h("span", { class: "dim mono small" }, shortId(task.id)),
      ),
      h("td", {}, task.skill && tag(task.skill)),
      h(
        "td",
        {},
        h(
          "a",
          {
            href: link(["tasks"], { context: task.contextId, ...whose() }),
            class: "dim mono small",
            title: `All tasks of ${task.contextId}`,
          },
          shortId(task.contextId),
        ),
      ),
      h("td", { class: "dim" }, task.turn),
      h(
        "td",
        {},
        h(
          "time",
          { class: "dim", datetime: task.status.timestamp, title: fullMoment(task.status.timestamp) },
          ago(task.status.timestamp),
        ),
      ),
    );
  }

  // Whatever changes goes to the top, if the filters let it in.
  function changed(task) {
    if (!answer || !task?.id) return;
    const before = shown.get(task.id);
    if (!before && token && task.status.timestamp <= oldest) return; // its page was not asked for yet
    const name = stateName(task.status.state);
    if (before && stateName(before.status.state) !== name) answer.states[stateName(before.status.state)] -= 1;
    if (!before || stateName(before.status.state) !== name) answer.states[name] = (answer.states[name] ?? 0) + 1;
    if (!before) recount();
    const { state, context, skill, text } = filters();
    const fits =
      (!state || state === name) &&
      (!context || context === task.contextId) &&
      (!skill || skill === task.skill) &&
      !filters().until &&
      (!text || [task.said, task.id, task.contextId].some((each) => each?.toLowerCase().includes(text.toLowerCase())));
    if (fits) {
      if (!before) {
        answer.total += 1;
        announce(`New task, ${stateLabel(name).toLowerCase()}`);
      }
      shown.set(task.id, task);
      fresh.add(task.id);
      setTimeout(() => {
        fresh.delete(task.id);
      }, 2000);
    } else if (shown.delete(task.id)) answer.total -= 1;
    draw();
  }

  // A task that is not in the list may have been counted in another state before.
  const recount = later(async () => {
    if (signal.aborted) return;
    const counted = await send(ops("GET", "/tasks", { query: { ...filters(), pageSize: 1 } }), {
      signal,
      quiet: true,
    }).catch(() => null);
    if (counted) {
      answer.states = counted.states;
      answer.total = counted.total;
      draw();
    }
  }, 500);

  keys(main, signal, rows);
  place.replaceChildren();
  await load(true, true);
  const ticking = setInterval(draw, 30_000);
  signal.addEventListener("abort", () => clearInterval(ticking));
  await follow({
    call: () => ops("GET", "/events", { query: whose() }),
    onEvent: changed,
    onOpen: () => load(true),
    signal,
  });
}

// j and k, or the arrows, go through the rows; / goes to the search.
function keys(main, signal, rows) {
  document.addEventListener(
    "keydown",
    (event) => {
      if (
        event.target.closest?.("input, textarea, select, dialog, .drawer") ||
        event.ctrlKey ||
        event.metaKey ||
        event.altKey
      )
        return;
      if (event.key === "/") {
        event.preventDefault();
        main.querySelector("input[type=search]")?.focus();
        return;
      }
      const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const links = [...rows.querySelectorAll("td.said a")];
      if (!links.length) return;
      event.preventDefault();
      const at = links.indexOf(document.activeElement);
      links[Math.min(links.length - 1, Math.max(0, at + step))].focus();
    },
    { signal },
  );
}
