// One task: its title, state, log and actions.

import { announce, h, later, replace, soon } from "../dom.js";
import { agentCard, steeringButtons } from "../agent_card.js";
import { ops, send } from "../api.js";
import { PAUSED, shorten, stateLabel, stateName } from "../format.js";
import { masked, raw } from "../json.js";
import { copyAs, download, empty, problem, tabs } from "../pieces.js";
import { setQuery } from "../router.js";
import { TaskLog } from "../task_log.js";
import { actions, fork } from "./actions.js";
import { liveness } from "./liveness.js";
import { overview } from "./overview.js";
import { question } from "./question.js";
import { replay } from "./replay.js";
import { doubts, heading, taskFacts, taskTitle } from "./task_head.js";
import { timeline } from "./timeline.js";
import { waterfall } from "./waterfall.js";
import { webhookList } from "./webhooks.js";

export const taskView = { id: "tasks", title: "Task", open };

async function open({ main, parts: [, id], query, signal, me }) {
  const ownerQuery = Object.fromEntries(
    ["tenant", "owner", "askedTenant"].filter((name) => query[name] !== undefined).map((name) => [name, query[name]]),
  );
  const mine = ownerQuery.owner === undefined || ownerQuery.owner === me?.owner;
  const log = new TaskLog(id, ownerQuery);
  const call = (method, path, body) =>
    ops(method, `/tasks/${encodeURIComponent(id)}${path}`, { query: ownerQuery, body });
  // Requests the whole task (needed once, and where the log is trimmed) or only its state.
  const look = (whole) =>
    send(ops("GET", `/tasks/${encodeURIComponent(id)}`, { query: { ...ownerQuery, brief: whole ? "" : "true" } }), {
      signal,
    });
  replace(main, h("p", { class: "dim pulse" }, "Loading…"));
  let [about] = await Promise.all([look(false), log.load(signal)]);
  if (log.floor) about = await look(true);
  let webhooks = (await send(call("GET", "/webhooks"), { signal, quiet: true }).catch(() => ({ webhooks: [] })))
    .webhooks;
  const own = await agentCard().then(steeringButtons, () => []);
  if (signal.aborted) return;

  const [top, doing, doubt] = [h("div", { class: "stack" }), h("div", {}), h("div", {})];
  const alive = liveness({ log, signal, look: () => refresh() });
  const head = h("div", { class: "stack task-head" }, top, doing, doubt, alive.element);
  const asked = h("div", {});
  const waiting = h("div", {}); // link to the question, shown in the other tabs
  let chosen = "";
  let current = null; // the content of the open tab, updated with new entries
  let signature = "";
  let offered = "";
  const onFork = (seq) => fork({ call, head: log.last, seq });
  const showEvent = (seq) => {
    setQuery({ event: seq });
    pages.choose("timeline");
  };
  const pages = tabs(
    "The task",
    [
      { id: "overview", title: "Overview" },
      { id: "timeline", title: "Timeline" },
      { id: "waterfall", title: "Waterfall" },
      { id: "replay", title: "Replay" },
      { id: "webhooks", title: "Webhooks", count: webhooks.length || undefined },
      { id: "raw", title: "Raw" },
    ],
    query.tab ?? (query.event ? "timeline" : "overview"), // each entry has a URL
    (tab, panel) => {
      current?.stop?.();
      setQuery({ tab: tab === "overview" ? "" : tab, ...(tab !== "timeline" && { event: "", kind: "" }) });
      chosen = tab;
      current = show(tab, panel);
      drawWaiting();
    },
  );

  function show(tab, panel) {
    if (!log.entries.length && ["timeline", "waterfall", "replay"].includes(tab)) {
      panel.append(
        empty("The log was removed", "Retention removed it. Overview and Raw show the final state of the task."),
      );
      return {};
    }
    if (tab === "timeline") {
      const made = timeline({
        log,
        onFork,
        onReplay: (seq) => {
          setQuery({ at: seq, tab: "replay" });
          pages.choose("replay");
        },
      });
      panel.append(made.element);
      made.start();
      return made;
    }
    if (tab === "waterfall") {
      const draw = soon(() => replace(panel, waterfall({ log, webhooks, onEvent: showEvent })));
      draw();
      const ticking = log.ended ? 0 : setInterval(draw, 1000);
      const stop = () => clearInterval(ticking);
      signal.addEventListener("abort", stop);
      return { grow: draw, stop };
    }
    if (tab === "overview") {
      const made = overview({ log, question: asked, side: () => taskFacts({ id, about, log, ownerQuery }) });
      panel.append(made.element);
      made.draw(about);
      return { grow: () => made.draw(about) };
    }
    if (tab === "replay") {
      const made = replay({ log, signal, onFork });
      panel.append(made.element);
      return made;
    }
    if (tab === "webhooks") {
      const draw = async () => {
        webhooks = (await send(call("GET", "/webhooks"), { signal, quiet: true }).catch(() => ({ webhooks }))).webhooks;
        replace(panel, webhookList(webhooks, { call, again: draw }));
      };
      draw();
      return { grow: later(draw, 500) };
    }
    const whole = h("div", {}, h("p", { class: "dim pulse" }, "Loading…"));
    panel.append(
      h(
        "div",
        { class: "stack" },
        h(
          "div",
          { class: "row" },
          copyAs(call("GET", "")),
          h(
            "button",
            {
              type: "button",
              class: "quiet small",
              onclick: () =>
                download(`task-${id}.json`, JSON.stringify(masked({ ...about, log: log.entries }), null, 2)),
            },
            "Download with its log",
          ),
        ),
        whole,
      ),
    );
    look(true).then(
      (found) => replace(whole, raw(found, { name: `task-${id}.json` })),
      (error) => {
        if (!signal.aborted) replace(whole, problem(error));
      },
    );
    return {};
  }

  const draw = () => {
    if (signal.aborted) return;
    const state = stateName(about.task.status.state);
    document.title = `${stateLabel(state)} · ${shorten(taskTitle(log, about), 40)}`;
    const dead = about.work?.state === "dead";
    replace(top, heading({ about, log, state, ownerQuery }));
    replace(doubt, doubts(about, state));
    alive.update(about);
    // While the state is the same, buttons keep the focus and the question keeps the user's input.
    if (`${state} ${dead}` !== offered) {
      offered = `${state} ${dead}`;
      const more = { head: () => log.last, again: refresh, own, choose: pages.choose };
      replace(doing, actions({ id, state, ownerQuery, dead, ...more }));
    }
    const now = `${state} ${about.task.status.timestamp}`;
    if (now !== signature) {
      signature = now;
      replace(asked, question(about.task, state, { mine, again: refresh }));
    }
    drawWaiting();
    current?.grow?.();
  };
  function drawWaiting() {
    const state = stateName(about.task.status.state);
    replace(
      waiting,
      chosen !== "overview" &&
        PAUSED.includes(state) &&
        h(
          "p",
          { class: "notice ask" },
          h("span", {}, "The task is waiting for an answer."),
          h("button", { type: "button", class: "small", onclick: () => pages.choose("overview") }, "Show the question"),
        ),
    );
  }
  let requested = 0;
  let drawn = 0;
  const refresh = later(async () => {
    const number = (requested += 1);
    try {
      const found = await look(Boolean(log.floor || log.gap));
      if (number < drawn) return; // a later request had a newer state
      drawn = number;
      about = found;
      draw();
    } catch (error) {
      if (!signal.aborted && error.status === 404)
        replace(main, h("h1", {}, "Task not found"), empty("The task was erased.", ""), problem(error));
    }
  }, 150);

  replace(main, head, waiting, pages.element);
  draw();
  pages.start();
  const grow = soon(() => current?.grow?.());
  await log.follow(signal, ([entry]) => {
    alive.entry(entry);
    if (entry.kind !== "artifact") {
      refresh();
      if (entry.data?.status) announce(`The task is ${stateLabel(entry.data.status.state).toLowerCase()}`);
    }
    grow();
  });
  if (!signal.aborted) {
    refresh();
    grow();
  }
}
