// The task list: filtered by the URL, loaded page by page, and updated live.

import { announce, h, later, replace, soon } from "../dom.js";
import { ops, send } from "../api.js";
import { agentCard } from "../agent_card.js";
import { STATES, number, plural, stateLabel, stateName } from "../format.js";
import { plainText } from "../parts.js";
import { empty, problem } from "../pieces.js";
import { here, link, setQuery } from "../router.js";
import { follow } from "../stream.js";
import { bulkBar } from "./bulk.js";
import { savedViews } from "./saved_views.js";
import { filterControls } from "./task_filters.js";
import { ownerOf, partitionQuery, taskRows, took } from "./task_rows.js";

export const tasksView = { id: "tasks", title: "Tasks", open };

const PAGE = 50;
const MOST = 10_000; // limit of selected tasks
const FILTERS = ["state", "context", "skill", "text", "since", "until", "tenant", "owner", "askedTenant", "all"];
const SORTS = {
  state: (task) => stateName(task.status.state),
  said: (task) => (task.said ?? "").toLowerCase(),
  skill: (task) => task.skill ?? "",
  owner: (task) => ownerOf(task),
  took: (task) => took(task),
  changed: (task) => task.status.timestamp,
};

// State of the list when the user leaves it. The Back button restores it if the history entry has the same number.
let savedList = null;
let listNumber = 0;

async function open({ main, query, signal, me }) {
  let shown = new Map(); // id → task, in display order
  let token = "";
  let fresh = new Set(); // ids of tasks that changed while the list was open
  let answer = null;
  let edge = ""; // time of the last task on the last loaded page
  let loading = new AbortController();
  const chosen = new Map(); // id → task

  const within = () => Number(here().query.within);
  const filters = () =>
    Object.fromEntries(
      [
        ...FILTERS.map((name) => [name, here().query[name]]),
        ...(within() ? [["since", new Date(Date.now() - within() * 1000).toISOString()]] : []),
      ].filter(([, value]) => value),
    );
  const oldestFirst = () => here().query.sort === "changed"; // the server sorts by the last status, in both directions
  const asked = ({ text: q, ...rest } = filters()) => ({
    ...rest,
    ...(q && { q }),
    ...(oldestFirst() && { sort: "updated" }),
  });
  const ownerQuery = () =>
    Object.fromEntries(
      ["tenant", "owner", "askedTenant"]
        .map((name) => [name, here().query[name]])
        .filter(([, value]) => value !== undefined),
    );
  const ownerQueryOf = (task) => (everyone() ? partitionQuery(task) : ownerQuery());
  const counts = h("div", { class: "chips", role: "group", "aria-label": "By state" });
  const rows = h("tbody");
  const heads = h("tr");
  const table = h(
    "table",
    { class: "tasks" },
    h("caption", { class: "sr-only" }, "Tasks"),
    h("thead", {}, heads),
    rows,
  );
  const note = h("p", { class: "dim", "aria-live": "polite" });
  const place = h("div", { class: "table-place" }, table);
  const more = h("button", { type: "button", onclick: () => load(false) }, "More");
  const views = savedViews();
  const everyone = () => here().query.all === "true";
  const row = taskRows({
    ownerQuery: ownerQueryOf,
    chosen,
    owners: everyone,
    onChoose(task, on) {
      if (on) chosen.set(task.id, task);
      else chosen.delete(task.id);
      draw();
    },
  });
  const bulk = bulkBar({
    chosen,
    ownerQuery: ownerQueryOf,
    clear: () => {
      chosen.clear();
      draw();
    },
    done: () => reload(),
    all: () =>
      token && chosen.size >= shown.size
        ? {
            label:
              answer.total === undefined ? "Select all matches" : `Select all ${number(answer.total)} matches`,
            choose: () => chooseAll(),
          }
        : null,
  });
  const card = await agentCard().catch(() => ({}));
  const controls = await filterControls({ query, card, me, change });
  if (signal.aborted) return;
  replace(
    main,
    h("div", { class: "view-head" }, h("h1", {}, "Tasks"), note),
    counts,
    controls,
    views.element,
    bulk.element,
    place,
    h("div", { class: "row after" }, more),
  );

  function change(changes) {
    setQuery(changes);
    chosen.clear();
    load(true);
  }

  const page = (pageToken, size, wanted) =>
    send(ops("GET", "/tasks", { query: { ...asked(), pageSize: size, pageToken } }), {
      signal: wanted ? AbortSignal.any([signal, wanted]) : signal,
    });

  async function load(anew, first = false) {
    loading.abort(); // responses to an earlier filter are dropped
    loading = new AbortController();
    const wanted = loading.signal;
    more.disabled = true;
    let found;
    try {
      found = await page(anew ? "" : token, PAGE, wanted);
    } catch (error) {
      if (first) throw error; // the router retries the whole view
      if (signal.aborted || wanted.aborted) return;
      more.disabled = false;
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
    take(found);
    more.disabled = false;
    draw();
  }

  function take(found) {
    answer = found;
    for (const task of answer.tasks) shown.set(task.id, task);
    token = answer.nextPageToken;
    edge = answer.tasks.at(-1)?.status.timestamp ?? edge;
  }

  // Reloads the shown tasks after a bulk action, a reconnect, or a return to the list.
  async function reload() {
    const wanted = shown.size;
    const before = loading.signal;
    const pages = [];
    try {
      do pages.push(await page(pages.at(-1)?.nextPageToken ?? "", Math.min(100, Math.max(PAGE, wanted)), before));
      while (pages.at(-1).nextPageToken && pages.length * 100 < wanted);
    } catch {
      return; // runs again after the reconnect
    }
    if (signal.aborted || before.aborted) return;
    shown = new Map();
    pages.forEach(take);
    draw();
  }

  async function chooseAll() {
    const wanted = loading.signal; // another filter ends the selection
    try {
      while (token && shown.size < MOST) {
        const found = await page(token, 100, wanted);
        if (wanted.aborted) return;
        take(found);
      }
    } catch (error) {
      if (!signal.aborted && !wanted.aborted) replace(place, problem(error, chooseAll));
      return;
    }
    for (const task of shown.values()) chosen.set(task.id, task);
    draw();
  }

  const columns = () => [
    ["state", "State"],
    ["said", "Task"],
    ["skill", "Skill", "wide"],
    ...(everyone() ? [["owner", "Owner", "wide"]] : []),
    ["took", "Duration", "wide"],
    ["changed", "Changed"],
  ];

  function drawHeads() {
    const [, down, by] = /^(-?)(\w+)$/.exec(here().query.sort ?? "-changed") ?? [];
    const all = shown.size > 0 && [...shown.keys()].every((id) => chosen.has(id));
    const sorted = (name) => (name === by ? (down ? "descending" : "ascending") : null);
    const key = JSON.stringify([down, by, all, everyone()]);
    if (heads.dataset.key === key) return;
    heads.dataset.key = key;
    const focused = [...heads.children].findIndex((each) => each.contains(document.activeElement));
    replace(
      heads,
      h(
        "th",
        { scope: "col", class: "choose" },
        h("input", {
          type: "checkbox",
          checked: all,
          "aria-label": "Select all shown",
          onchange: (event) => {
            if (event.target.checked) for (const task of shown.values()) chosen.set(task.id, task);
            else chosen.clear();
            draw();
          },
        }),
      ),
      columns().map(([name, label, kind]) =>
        h(
          "th",
          { scope: "col", class: kind, "aria-sort": sorted(name) },
          h(
            "button",
            {
              type: "button",
              class: "sort",
              onclick: () => {
                const next =
                  name === by ? (down ? name : `-${name}`) : name === "took" || name === "changed" ? `-${name}` : name;
                const before = oldestFirst();
                setQuery({ sort: next === "-changed" ? "" : next });
                if (oldestFirst() === before) draw();
                else load(true);
              },
            },
            label,
            h("span", { "aria-hidden": "true" }, { descending: " ↓", ascending: " ↑" }[sorted(name)] ?? ""),
          ),
        ),
      ),
    );
    if (focused >= 0) heads.children[focused].querySelector("input, button").focus();
  }

  function inOrder() {
    const [, down, by] = /^(-?)(\w+)$/.exec(here().query.sort ?? "-changed") ?? [];
    const value = SORTS[by] ?? SORTS.changed;
    const sign = down || !SORTS[by] ? -1 : 1;
    const keyed = [...shown.values()].map((task) => [value(task), task]);
    keyed.sort(([one], [other]) => sign * (one < other ? -1 : one > other ? 1 : 0));
    return keyed.map(([, task]) => task);
  }

  const draw = soon(() => {
    if (signal.aborted || !answer) return;
    const state = here().query.state ?? "";
    const states = answer.states; // the list of all owners has no totals
    const all = states && Object.values(states).reduce((sum, each) => sum + each, 0);
    replace(
      counts,
      [
        ["", "All", all, "still"],
        ...Object.entries(STATES).map(([name, { label, tone }]) => [name, label, states && (states[name] ?? 0), tone]),
      ]
        .filter(([name, , count]) => count || name === state || name === "" || (!states && name !== "unspecified"))
        .map(([name, label, count, tone]) =>
          h(
            "button",
            {
              type: "button",
              class: `chip ${tone}`,
              "aria-pressed": String(name === state),
              onclick: () => change({ state: name }),
            },
            label,
            states && h("span", { class: "count" }, number(count)),
          ),
        ),
    );
    const searched = Boolean(filters().text || filters().skill);
    const sorted = here().query.sort && !oldestFirst() && token ? `, sorted within the ${number(shown.size)} loaded` : "";
    note.textContent =
      searched || !states
        ? `${plural(shown.size, "task")} found so far${token ? "" : ", search complete"}${sorted}`
        : `${plural(answer.total, "task")}${answer.exact ? "" : " or more"}${sorted}`;
    more.hidden = !token;
    more.textContent = searched ? "Search older tasks" : "More";
    for (const id of chosen.keys()) if (shown.has(id)) chosen.set(id, shown.get(id));
    drawHeads();
    views.draw();
    bulk.draw();
    inOrder().forEach((task, index) => {
      const element = row(task, { fresh: fresh.has(task.id) });
      const there = rows.children[index];
      if (there === element) return;
      const focused = there?.dataset.id === task.id && there.contains(document.activeElement);
      const selector = focused ? (document.activeElement.matches("input") ? "input" : "a") : "";
      if (there?.dataset.id === task.id) there.replaceWith(element);
      else rows.insertBefore(element, there ?? null);
      if (selector) element.querySelector(selector).focus();
    });
    while (rows.children.length > shown.size) rows.lastChild.remove();
    replace(place, shown.size ? table : nothing());
  });

  function nothing() {
    if (token) {
      const [near, far] = oldestFirst() ? ["oldest", "newer"] : ["newest", "older"];
      return empty(`No match among the ${near} tasks`, `${far === "older" ? "Older" : "Newer"} tasks may match.`);
    }
    if (Object.keys(filters()).length) {
      return h(
        "div",
        {},
        empty("No matching tasks", "Remove a filter, or show all tasks."),
        h("div", { class: "row center" }, h("a", { class: "button", href: link(["tasks"]) }, "All tasks")),
      );
    }
    return h(
      "div",
      {},
      empty("No tasks yet", "The first message creates one."),
      h("div", { class: "row center" }, h("a", { class: "button primary", href: link(["try"]) }, "Try the agent")),
    );
  }

  // Moves a changed task to the top (to the end if the oldest come first), if it matches the filters.
  function changed(task) {
    if (!answer?.states || !task?.id) return;
    const before = shown.get(task.id);
    const { timestamp } = task.status;
    const unread = token && (oldestFirst() ? timestamp >= edge : timestamp <= edge); // its page is not loaded yet
    if (unread && !before) {
      if (oldestFirst()) recount();
      return;
    }
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
      (!text || text.toLowerCase().split(/\s+/).every((word) => wordsOf(task).includes(word)));
    if (fits && unread && oldestFirst()) shown.delete(task.id);
    else if (fits) {
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

  // A task outside the list may have been counted in another state before, so the totals are requested again.
  const recount = later(async () => {
    if (signal.aborted) return;
    const wanted = loading.signal;
    const counted = await send(ops("GET", "/tasks", { query: { ...asked(), pageSize: 1 } }), {
      signal,
      quiet: true,
    }).catch(() => null);
    if (counted && !wanted.aborted) {
      answer.states = counted.states;
      answer.total = counted.total;
      draw();
    }
  }, 500);

  keys(main, signal, rows);
  place.replaceChildren();
  const back = savedList && history.state?.list === savedList.number;
  const mark = back ? savedList.number : (listNumber += 1);
  history.replaceState({ list: mark }, "");
  if (back) {
    ({ shown, token, answer, edge } = savedList);
    draw();
    const { y } = savedList;
    requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(0, y)));
    reload();
  } else await load(true, true);
  const ticking = setInterval(draw, 30_000);
  signal.addEventListener("abort", () => {
    clearInterval(ticking);
    savedList = { number: mark, shown, token, answer, edge, y: scrollY };
  });
  if (everyone()) return; // the stream has only the tasks of one owner
  await follow({
    call: () => ops("GET", "/events", { query: ownerQuery() }),
    onEvent: changed,
    onOpen: reload,
    signal,
  });
}

// The texts that the server's search covers, as far as the list has them.
const wordsOf = ({ said, id, contextId, status }) =>
  [said, id, contextId, plainText(status.message)].join(" ").toLowerCase();

// Keyboard: j and k, or the arrows, move between rows; / moves to the search field.
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
