// The head of a task page: its title, its state, and doubtful steps.

import { h } from "../dom.js";
import { processName, stepName } from "../events.js";
import { ENDED, duration, plural, stateName } from "../format.js";
import { badge, copyButton, facts, tag, time } from "../pieces.js";
import { link } from "../router.js";
import { isOpening, skillOf, titleById, titleOf } from "../titles.js";

export function taskTitle(log, about) {
  const message = log.entries.find(isOpening)?.data ?? about.task.history?.[0];
  return titleOf(message, skillOf(message) || about.task.metadata?.skillId);
}

export function heading({ about, log, state, ownerQuery }) {
  return [
    h("nav", { class: "crumbs", "aria-label": "Where" }, h("a", { href: link(["tasks"], ownerQuery) }, "Tasks")),
    h("div", { class: "row" }, h("h1", {}, taskTitle(log, about)), badge(state)),
    about.cancelRequested &&
      !ENDED.includes(state) &&
      h("p", { class: "notice ask" }, h("span", {}, "Cancellation requested; the worker is notified.")),
  ];
}

// Further facts, beside the progress.
export function taskFacts({ id, about, log, ownerQuery }) {
  const { work, task } = about;
  const ended = ENDED.includes(stateName(task.status.state));
  const took = new Date(ended ? task.status.timestamp : Date.now()) - new Date(about.created);
  const origin = task.metadata?.forkedFrom;
  const refers = [
    ...new Set(log.entries.flatMap(({ kind, data }) => (kind === "message" ? (data.referenceTaskIds ?? []) : []))),
  ]
    .filter((each) => each !== origin?.taskId)
    .slice(0, 5);
  const last = log.entries.findLast(({ kind }) => kind === "attempt")?.data;
  const other = (taskId, query) => {
    const anchor = h("a", { href: link(["tasks", taskId], { ...query, ...ownerQuery }), title: taskId }, "…");
    titleById(taskId, ownerQuery).then((title) => (anchor.textContent = title));
    return anchor;
  };
  return facts([
    ["Started", time(about.created)],
    [ended ? "Duration" : "Running for", duration(took)],
    ["Turn", about.turn.number],
    ["Attempts of this turn", about.runs || null],
    [
      work?.holder ? "Runs in" : "Last ran in",
      last ? h("span", { title: last.worker }, processName(work?.holder ?? last.worker)) : null,
    ],
    [
      "Work",
      work && !work.holder
        ? `${work.state}${work.readyIn > 0 ? `, ready in ${duration(work.readyIn * 1000)}` : ""}${work.reason ? `: ${work.reason}` : ""}`
        : null,
    ],
    ["Priority", work?.priority || null],
    ["Waiting messages", about.pendingMessages || null],
    [
      "Conversation",
      h("a", { href: link(["tasks"], { context: task.contextId, ...ownerQuery }), title: task.contextId }, "Tasks of the conversation"),
    ],
    ["Forked from", origin?.taskId ? other(origin.taskId, { event: origin.seq }) : null],
    ["Refers to", refers.map((each) => h("div", {}, other(each)))],
    ["Log", about.floor ? `removed up to #${about.floor}` : null],
    ["Id", h("span", { class: "row tight" }, h("code", { class: "dim break" }, id), copyButton(id, "Copy id"))],
  ]);
}

export function doubts(about, state) {
  const found = Object.entries(about.steps ?? {}).filter(([, { state: each }]) => each === "in doubt");
  if (!found.length || ENDED.includes(state)) return null;
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h(
      "div",
      {},
      h("strong", {}, `${plural(found.length, "step")} in doubt: `),
      found.map(([name]) => tag(stepName(name), "bad")),
      h("p", {}, "The process died before the end of the step was recorded. The step may have taken effect."),
    ),
  );
}
