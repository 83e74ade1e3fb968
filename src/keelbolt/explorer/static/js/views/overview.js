// The first tab of a task page: the conversation, and the progress beside it.

import { h, replace } from "../dom.js";
import { conversation } from "../conversation.js";
import { asked } from "../decision.js";
import { processName, stepName, traceback } from "../events.js";
import { ENDED, PAUSED, duration, plural, shorten, stateName } from "../format.js";
import { parts } from "../parts.js";
import { facts, tag, time } from "../pieces.js";

const STEPS = 8; // the last steps are shown; a button shows the others

// The `question` element is not redrawn, so that it keeps the user's input.
export function overview({ log, question, side }) {
  const list = h("div", { class: "stack" });
  const last = h("div", { class: "stack" });
  const progress = h("aside", { class: "card progress", "aria-label": "Progress" });
  const known = new Map(); // seq → {size, node}
  const element = h(
    "div",
    { class: "columns beside" },
    h("section", { class: "stack talk-column", "aria-label": "Conversation" }, list, question, last),
    progress,
  );

  function draw(about) {
    const state = stateName(about.task.status.state);
    const items = conversation(log, about);
    const open = PAUSED.includes(state) && items.findLast(({ kind }) => kind === "message")?.state === state;
    if (open)
      items.splice(
        items.findLastIndex(({ kind }) => kind === "message"),
        1,
      ); // the question is shown below
    items.forEach((item, index) => {
      const before = known.get(item.seq);
      const node = before?.size === item.size ? before.node : itemNode(item);
      known.set(item.seq, { size: item.size, node });
      if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
    });
    while (list.children.length > items.length) list.lastChild.remove();
    replace(last, ENDED.includes(state) ? ending(state, items, log) : waiting(state, items));
    replace(progress, progressOf(log, about, state), side(about));
  }
  return { element, draw };
}

function itemNode(item) {
  if (item.kind === "steer") {
    const { kind, source, reason } = item.steer;
    return h("p", { class: "turn-line" }, [kind, source && `by ${source}`, reason].filter(Boolean).join(" · "));
  }
  if (item.kind === "artifact") {
    const { artifact } = item;
    return h(
      "div",
      { class: "bubble theirs artifact-card" },
      h(
        "div",
        { class: "row tight" },
        h("h3", {}, artifact.name ?? resultName(artifact.artifactId)),
        artifact.description && h("span", { class: "dim" }, artifact.description),
      ),
      parts(artifact.parts),
    );
  }
  const mine = item.message.role === "ROLE_USER";
  const bad = item.state === "failed" || item.state === "rejected";
  return h(
    "div",
    { class: `bubble ${mine ? "mine" : "theirs"} ${bad ? "failed" : ""}` },
    h("span", { class: "sr-only" }, mine ? "User: " : "Agent: "),
    PAUSED.includes(item.state) ? asked(item.message) : parts(item.message.parts),
  );
}

// Keelbolt names the result of ctx.complete(text) final-answer; generated ids are not useful as titles.
const resultName = (id) => (id === "final-answer" || /^[0-9a-f-]{32,36}$/.test(id) ? "Result" : id);

function ending(state, items, log) {
  const error = log.entries.findLast(({ kind, data }) => kind === "error" && data.type)?.data;
  const answered = items.some((item) => item.kind === "artifact" || (item.state && ENDED.includes(item.state)));
  return [
    !answered && h("p", { class: "dim" }, state === "completed" ? "Completed without a message." : `The task was ${state}.`),
    error &&
      h(
        "details",
        { class: "notice bad" },
        h("summary", {}, h("strong", {}, error.type), `: ${shorten(error.message, 300)}`),
        traceback(error),
      ),
  ];
}

const waiting = (state, items) =>
  (state === "working" || state === "submitted") &&
  !items.some(({ kind }) => kind === "artifact") &&
  h("p", { class: "dim pulse" }, state === "working" ? "Running…" : "Waiting for a process…");

// ----------------------------------------------------------------------------------------------------- progress

function progressOf(log, about, state) {
  const lastStatus = log.entries.findLast(({ data }) => data?.status?.message)?.data.status;
  const working =
    state === "working" && lastStatus && stateName(lastStatus.state) === "working" ? lastStatus.message : null;
  return [
    h("h2", {}, "Progress"),
    working && h("div", { class: "said" }, parts(working.parts)),
    attempts(log, about, state),
    steps(log, about),
  ];
}

// Attempts of the last turn, if there were several: the process of each, and why it ended.
function attempts(log, about, state) {
  const list = log.entries.filter(({ kind }) => kind === "attempt");
  const turn = list.at(-1)?.data.turn;
  const shown = list.filter(({ data }) => data.turn === turn);
  if (shown.length < 2) return null;
  return h(
    "ol",
    { class: "plain attempts", "aria-label": "Attempts" },
    shown.map(({ data, at }, index) => {
      const next = shown[index + 1];
      return h(
        "li",
        { class: "row tight" },
        next ? tag("lost", "bad") : tag(ENDED.includes(state) ? "ended" : "took over", next ? "bad" : "good"),
        h("span", { title: data.worker }, processName(data.worker)),
        h("span", { class: "dim small" }, next ? `after ${duration(Date.parse(next.at) - Date.parse(at))}` : time(at)),
      );
    }),
  );
}

function steps(log, about) {
  const found = new Map();
  for (const { kind, data, at } of log.entries) {
    if (kind === "attempt" && data.attempt === 1) found.clear();
    if (kind !== "step") continue;
    const before = found.get(data.step);
    found.set(data.step, {
      state: data.state,
      from: data.state === "started" || !before ? Date.parse(at) : before.from,
      to: data.state === "started" ? null : Date.parse(at),
      error: data.error,
    });
  }
  for (const [name, { state }] of Object.entries(about.steps ?? {})) {
    if (!found.has(name)) found.set(name, { state, from: 0, to: null });
    else if (state === "in doubt") found.get(name).state = state;
  }
  if (!found.size) return null;
  const list = [...found];
  const done = list.filter(([, { state }]) => state === "done").length;
  const row = ([name, step]) =>
    h(
      "li",
      { class: "step" },
      h("span", { class: `step-mark ${toneOf(step.state)}`, "aria-hidden": "true" }, markOf(step.state)),
      h("span", { class: "grow-text" }, stepName(name)),
      h(
        "span",
        { class: "dim small" },
        step.state === "done" ? (step.to ? duration(step.to - step.from) : "done") : step.state,
      ),
    );
  const early = list.slice(0, -STEPS);
  return [
    h("h3", {}, `${done} of ${plural(list.length, "step")} done`),
    early.length > 0 &&
      h(
        "details",
        { class: "more" },
        h("summary", {}, `${plural(early.length, "earlier step")}`),
        h("ol", { class: "plain steps-list" }, early.map(row)),
      ),
    h("ol", { class: "plain steps-list" }, list.slice(-STEPS).map(row)),
  ];
}

const toneOf = (state) =>
  state === "done" ? "good" : state === "started" ? "busy" : state === "answered" || state === "retry" ? "ask" : "bad";
const markOf = (state) => ({ done: "✓", started: "●" })[state] ?? "!";
