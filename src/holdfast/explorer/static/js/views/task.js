// One task: what it is about, how it stands, everything that happened, and what one can do.

import { announce, h, replace, soon, later } from "../dom.js";
import { ops, send } from "../api.js";
import { processName, stepName } from "../events.js";
import { fold } from "../fold.js";
import { ENDED, duration, fullMoment, plural, shortId, shorten, stateLabel, stateName } from "../format.js";
import { masked, raw } from "../json.js";
import { parts, plainText } from "../parts.js";
import { badge, copyAs, copyButton, download, empty, facts, problem, tabs, tag, time } from "../pieces.js";
import { here, link, setQuery } from "../router.js";
import { TaskLog } from "../task_log.js";
import { actions, fork } from "./actions.js";
import { question } from "./question.js";
import { replay } from "./replay.js";
import { timeline } from "./timeline.js";
import { waterfall } from "./waterfall.js";
import { webhookList } from "./webhooks.js";

export const taskView = { id: "tasks", title: "Task", open };

async function open({ main, parts: [, id], query, signal, me }) {
  const whose = Object.fromEntries(["tenant", "owner", "askedTenant"].filter((name) => query[name] !== undefined).map((name) => [name, query[name]]));
  const mine = whose.owner === undefined || whose.owner === me?.owner;
  const log = new TaskLog(id, whose);
  const call = (method, path, body) => ops(method, `/tasks/${encodeURIComponent(id)}${path}`, { query: whose, body });
  // All of it once, and where the log does not tell it; else, how it stands.
  const look = (whole) => send(ops("GET", `/tasks/${encodeURIComponent(id)}`, { query: { ...whose, brief: whole ? "" : "true" } }), { signal });
  replace(main, h("p", { class: "dim pulse" }, "Loading…"));
  let [about] = await Promise.all([look(false), log.load(signal)]);
  if (log.floor) about = await look(true);
  let webhooks = (await send(call("GET", "/webhooks"), { signal, quiet: true }).catch(() => ({ webhooks: [] }))).webhooks;
  if (signal.aborted) return;

  const head = h("div", { class: "stack task-head" });
  const asked = h("div", {});
  let current = null; // what the open tab shows: it may grow
  let signature = "";
  const onFork = (seq) => fork({ call, head: log.last, seq });
  const showEvent = (seq) => { setQuery({ event: seq, tab: "" }); pages.choose("timeline"); };
  const pages = tabs("The task", [
    { id: "timeline", title: "Timeline" }, { id: "waterfall", title: "Waterfall" }, { id: "talk", title: "Conversation" },
    { id: "replay", title: "Replay" }, { id: "webhooks", title: "Webhooks", count: webhooks.length || undefined }, { id: "raw", title: "Raw" },
  ], query.tab ?? "timeline", (tab, panel) => {
    current?.stop?.();
    setQuery({ tab: tab === "timeline" ? "" : tab });
    current = show(tab, panel);
  });

  function show(tab, panel) {
    if (!log.entries.length && ["timeline", "waterfall", "replay"].includes(tab)) {
      panel.append(empty("The log is no longer kept", "Retention trimmed it; the task as it ended is under Conversation and Raw."));
      return {};
    }
    if (tab === "timeline") {
      const made = timeline({ log, onFork, onReplay: (seq) => { setQuery({ at: seq, tab: "replay" }); pages.choose("replay"); } });
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
    if (tab === "talk") {
      const draw = soon(() => replace(panel, conversation(log, about)));
      draw();
      return { grow: draw };
    }
    if (tab === "replay") {
      const made = replay({ log, signal, onFork });
      panel.append(made.element);
      return made;
    }
    if (tab === "webhooks") {
      const draw = async () => {
        webhooks = (await send(call("GET", "/webhooks"), { signal, quiet: true }).catch(() => ({ webhooks }))).webhooks;
        if (current?.tab === "webhooks" || panel.isConnected) replace(panel, webhookList(webhooks, { call, again: draw }));
      };
      draw();
      return { grow: later(draw, 500) };
    }
    const whole = h("div", {}, h("p", { class: "dim pulse" }, "Loading…"));
    panel.append(h("div", { class: "stack" },
      h("div", { class: "row" }, copyAs(call("GET", "")), h("button", { type: "button", class: "quiet small", onclick: () => download(`task-${id}.json`, JSON.stringify(masked({ ...about, log: log.entries }), null, 2)) }, "Download with its log")),
      whole));
    look(true).then((found) => replace(whole, raw(found, { name: `task-${id}.json` })), (error) => { if (!signal.aborted) replace(whole, problem(error)); });
    return {};
  }

  const draw = () => {
    if (signal.aborted) return;
    const state = stateName(about.task.status.state);
    document.title = `${stateLabel(state)} · ${shorten(opening(log, about) || "Task", 40)}`;
    replace(head, heading({ id, about, log, state, whose }), actions({ id, state, whose, head: log.last, dead: about.work?.state === "dead", again: refresh }), doubts(about, state));
    // The question stays as it is while somebody writes an answer.
    const now = `${state} ${about.task.status.timestamp}`;
    if (now !== signature) {
      signature = now;
      replace(asked, question(about.task, state, { mine, again: refresh }));
    }
  };
  const refresh = later(async () => {
    try {
      about = await look(Boolean(log.floor || log.gap));
      draw();
    } catch (error) {
      if (!signal.aborted && error.status === 404) replace(main, h("h1", {}, "This task is gone"), empty("It was erased.", ""), problem(error));
    }
  }, 150);

  replace(main, head, asked, pages.element);
  draw();
  pages.start();
  const grow = soon(() => current?.grow?.());
  await log.follow(signal, ([entry]) => {
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

const opening = (log, about) => plainText(log.entries.find(({ kind, data }) => kind === "message" && data.role === "ROLE_USER")?.data ?? about.task.history?.[0]);

function heading({ id, about, log, state, whose }) {
  const ended = ENDED.includes(state);
  const took = new Date(ended ? about.task.status.timestamp : Date.now()) - new Date(about.created);
  const { work, task } = about;
  const origin = task.metadata?.forkedFrom;
  const last = log.entries.findLast(({ kind }) => kind === "attempt")?.data;
  return [
    h("nav", { class: "crumbs", "aria-label": "Where" }, h("a", { href: link(["tasks"], whose) }, "Tasks"), " / ", h("span", { class: "mono" }, id), copyButton(id, "Copy id")),
    h("div", { class: "row" }, h("h1", {}, shorten(opening(log, about) || "Task", 120)), badge(state)),
    ended && state !== "completed" && task.status.message && h("div", { class: `notice ${state === "failed" ? "bad" : "still"}` }, h("div", {}, parts(task.status.message.parts))),
    facts([
      ["Began", time(about.created)], [ended ? "Took" : "For", duration(took)], ["Turn", about.turn.number], ["Attempts of this turn", about.runs || null],
      [work?.holder ? "Runs in" : "Last ran in", last ? h("span", { title: last.worker }, processName(work?.holder ?? last.worker)) : null],
      ["Work", work && !work.holder ? `${work.state}${work.readyIn > 0 ? `, ready in ${duration(work.readyIn * 1000)}` : ""}${work.reason ? `: ${work.reason}` : ""}` : null],
      ["Priority", work?.priority || null],
      ["Waiting messages", about.pendingMessages || null],
      ["Context", h("a", { class: "mono", href: link(["tasks"], { context: task.contextId, ...whose }), title: task.contextId }, shortId(task.contextId))],
      ["Forked from", origin?.taskId ? h("a", { class: "mono", href: link(["tasks", origin.taskId], { event: origin.seq, ...whose }) }, `${shortId(origin.taskId)} at #${origin.seq}`) : null],
      ["Log", about.floor ? `trimmed up to #${about.floor}` : null],
    ]),
    about.cancelRequested && !ended && h("p", { class: "notice ask" }, h("span", {}, "A cancel was asked for; the worker was told.")),
  ];
}

function doubts(about, state) {
  const found = Object.entries(about.steps ?? {}).filter(([, { state: each }]) => each === "in doubt");
  if (!found.length || ENDED.includes(state)) return null;
  return h("div", { class: "notice bad", role: "alert" }, h("div", {},
    h("strong", {}, `${plural(found.length, "step")} in doubt: `), found.map(([name]) => tag(stepName(name), "bad")),
    h("p", {}, "It began in a process that died before it reported. It may have taken effect, or not.")));
}

function conversation(log, about) {
  const task = log.entries.length && log.floor === 0 ? fold(log.entries) : { history: about.task.history ?? [], artifacts: new Map((about.task.artifacts ?? []).map((each) => [each.artifactId, each])), steps: new Map(Object.entries(about.steps ?? {})), status: about.task.status };
  return h("div", { class: "columns" },
    h("section", { class: "stack talk-column", "aria-label": "Messages" }, h("h2", {}, "Said"), task.history.map((message) => h("div", { class: `bubble ${message.role === "ROLE_USER" ? "mine" : "theirs"}` }, parts(message.parts)))),
    h("section", { class: "stack", "aria-label": "Artifacts" }, h("h2", {}, "Made"),
      !task.artifacts.size && h("p", { class: "dim" }, "No artifacts yet."),
      [...task.artifacts.values()].map((artifact) => h("div", { class: "card" }, h("div", { class: "row" }, h("h3", {}, artifact.name ?? artifact.artifactId), artifact.description && h("span", { class: "dim" }, artifact.description)), parts(artifact.parts))),
      task.steps.size > 0 && h("div", { class: "card" }, h("h3", {}, "Steps of this turn"), facts([...task.steps].map(([name, each]) => [stepName(name), h("span", {}, each.state, each.result !== undefined && each.result !== null && h("code", { class: "dim break" }, ` ${shorten(JSON.stringify(masked(each.result)), 200)}`))])))));
}
