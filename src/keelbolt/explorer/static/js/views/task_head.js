// The head of a task: what it is about, how it stands, and what is in doubt.

import { h } from "../dom.js";
import { processName, stepName, traceback } from "../events.js";
import { ENDED, duration, plural, shortId, shorten } from "../format.js";
import { parts, plainText } from "../parts.js";
import { badge, copyButton, facts, tag, time } from "../pieces.js";
import { link } from "../router.js";

export const opening = (log, about) =>
  plainText(
    log.entries.find(({ kind, data }) => kind === "message" && data.role === "ROLE_USER")?.data ??
      about.task.history?.[0],
  );

export function heading({ id, about, log, state, whose }) {
  const ended = ENDED.includes(state);
  const took = new Date(ended ? about.task.status.timestamp : Date.now()) - new Date(about.created);
  const { work, task } = about;
  const origin = task.metadata?.forkedFrom;
  const refers = [
    ...new Set(log.entries.flatMap(({ kind, data }) => (kind === "message" ? (data.referenceTaskIds ?? []) : []))),
  ]
    .filter((each) => each !== origin?.taskId)
    .slice(0, 5);
  const last = log.entries.findLast(({ kind }) => kind === "attempt")?.data;
  return [
    h(
      "nav",
      { class: "crumbs", "aria-label": "Where" },
      h("a", { href: link(["tasks"], whose) }, "Tasks"),
      " / ",
      h("span", { class: "mono" }, id),
      copyButton(id, "Copy id"),
    ),
    h("div", { class: "row" }, h("h1", {}, shorten(opening(log, about) || "Task", 120)), badge(state)),
    ended &&
      state !== "completed" &&
      task.status.message &&
      h(
        "div",
        { class: `notice ${state === "failed" ? "bad" : "still"}` },
        h("div", {}, parts(task.status.message.parts)),
      ),
    ended && exception(log),
    facts([
      ["Began", time(about.created)],
      [ended ? "Took" : "For", duration(took)],
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
        "Context",
        h(
          "a",
          { class: "mono", href: link(["tasks"], { context: task.contextId, ...whose }), title: task.contextId },
          shortId(task.contextId),
        ),
      ],
      [
        "Forked from",
        origin?.taskId
          ? h(
              "a",
              { class: "mono", href: link(["tasks", origin.taskId], { event: origin.seq, ...whose }) },
              `${shortId(origin.taskId)} at #${origin.seq}`,
            )
          : null,
      ],
      [
        "Refers to",
        refers.map((each) => h("a", { class: "mono", href: link(["tasks", each], whose) }, `${shortId(each)} `)),
      ],
      ["Log", about.floor ? `trimmed up to #${about.floor}` : null],
    ]),
    about.cancelRequested &&
      !ended &&
      h("p", { class: "notice ask" }, h("span", {}, "A cancel was asked for; the worker was told.")),
  ];
}

// The exception that ended the task: only operators have it in the log.
function exception(log) {
  const error = log.entries.findLast(({ kind, data }) => kind === "error" && data.type)?.data;
  if (!error) return null;
  return h(
    "details",
    { class: "notice bad" },
    h("summary", {}, h("strong", {}, error.type), `: ${shorten(error.message, 300)}`),
    traceback(error),
  );
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
      h("p", {}, "It began in a process that died before it reported. It may have taken effect, or not."),
    ),
  );
}
