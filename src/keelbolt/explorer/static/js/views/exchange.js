// One message and its response, shown as it arrives.

import { announce, h, replace, soon } from "../dom.js";
import { FOREIGN } from "../agents.js";
import { ApiError, rpc, send } from "../api.js";
import { questionOf } from "../decision.js";
import { ENDED, PAUSED, precise, stateLabel, stateName } from "../format.js";
import { raw } from "../json.js";
import { parts } from "../parts.js";
import { badge, copyAs, problem } from "../pieces.js";
import { follow } from "../stream.js";

const RAW_EVENTS = 500; // raw events kept for display
const UNKNOWN =
  "The connection broke before the agent responded. It may have received the message: check that before you send it again.";

export function exchange(params, { stream, taskLink, onTask, onAnswer }) {
  const call = rpc(stream ? "SendStreamingMessage" : "SendMessage", params, { stream });
  const artifacts = new Map();
  const received = [];
  let task = null;
  let state = null;
  let status = null;
  let answered = null;
  let failed = null;
  let asked = null;
  let count = 0;
  let attempts = 0;

  const head = h("div", { class: "row" });
  const body = h("div", { class: "stack" });
  const ask = h("div", {});
  const requestBox = h(
    "details",
    { class: "more" },
    h("summary", {}, "Request"),
    h("div", { class: "stack" }, copyAs(call), raw(call.body, { name: "request.json" })),
  );
  const responseBody = h("div", {});
  const responseBox = h("details", { class: "more" }, h("summary", {}, "Response"), responseBody);
  responseBox.addEventListener("toggle", drawRaw);
  const element = h(
    "article",
    { class: "exchange" },
    h("div", { class: "bubble mine" }, h("span", { class: "sr-only" }, "You: "), parts(params.message.parts)),
    h("div", { class: "bubble theirs" }, h("span", { class: "sr-only" }, "The agent: "), head, body, ask),
    h("div", { class: "row" }, requestBox, responseBox),
  );

  const draw = soon(() => {
    replace(
      head,
      task && taskLink(task.id),
      state ? badge(state) : !answered && !failed && h("span", { class: "dim pulse" }, "Sending…"),
      status?.timestamp && h("span", { class: "dim" }, precise(status.timestamp)),
    );
    replace(
      body,
      status?.message &&
        !PAUSED.includes(stateName(state)) &&
        h("div", { class: stateName(state) === "failed" ? "said bad-ink" : "said" }, parts(status.message.parts)),
      [...artifacts.values()].map((artifact) =>
        h(
          "section",
          { class: "artifact", "aria-label": `Artifact ${artifact.artifactId}` },
          h("h3", { class: "dim small" }, artifact.name ?? artifact.artifactId),
          parts(artifact.parts),
        ),
      ),
      answered && parts(answered.parts),
      failed && problem(failed),
    );
    if (asked !== state) replace(ask, question());
    asked = state; // keeps the user's input while other parts are redrawn
    if (responseBox.open) drawRaw();
  });

  function question() {
    if (!PAUSED.includes(stateName(state))) return null;
    return questionOf(status?.message, stateName(state), {
      onAnswer: (given) => {
        onAnswer(task, given);
        replace(ask);
      },
    });
  }

  function drawRaw() {
    if (!responseBox.open) return;
    replace(
      responseBody,
      count > received.length && h("p", { class: "dim" }, `The last ${received.length} of ${count} events`),
      raw(stream ? received : (received[0] ?? null), { name: "response.json" }),
    );
  }

  function receive(found) {
    if (!found) return;
    if (found.task) {
      task = found.task;
      artifacts.clear();
      for (const artifact of task.artifacts ?? [])
        artifacts.set(artifact.artifactId, { ...artifact, parts: [...(artifact.parts ?? [])] });
      move(task.status);
      onTask(task, state, status);
    } else if (found.statusUpdate) move(found.statusUpdate.status);
    else if (found.artifactUpdate) add(found.artifactUpdate);
    else if (found.message) answered = found.message;
    draw();
  }

  function move(next) {
    const before = state;
    status = next ?? status;
    state = status?.state ?? state;
    if (before !== state) {
      announce(`The task is ${stateLabel(state).toLowerCase()}`);
      if (task) onTask(task, state, status);
    }
  }

  function add({ artifact, append }) {
    const before = artifacts.get(artifact.artifactId);
    if (append && before) before.parts.push(...(artifact.parts ?? []));
    else artifacts.set(artifact.artifactId, { ...artifact, parts: [...(artifact.parts ?? [])] });
  }

  const keep = (frame) => {
    count += 1;
    received.push(frame);
    if (received.length > RAW_EVENTS) received.shift();
  };

  async function run(signal) {
    draw();
    try {
      if (!stream) {
        const found = await send(call, { signal });
        keep(found);
        receive(found);
        return;
      }
      await follow({
        signal,
        // A repeat with the same key returns the same task; once its id is known, the stream resumes at the last event.
        call: (after) => {
          if (task) return { ...rpc("SubscribeToTask", { id: task.id }, { stream: true }), after };
          attempts += 1;
          if (FOREIGN && attempts > 1) throw new ApiError(UNKNOWN); // sent without a key: a repeat may create another task
          return { ...call, after };
        },
        over: () => Boolean(answered) || [...ENDED, ...PAUSED].includes(stateName(state)),
        onEvent: (frame) => {
          keep(frame);
          receive(frame.result);
        },
      });
    } catch (error) {
      failed = error;
      keep({ error: error.answer ?? error.message });
    }
    draw();
  }

  return { element, run };
}
