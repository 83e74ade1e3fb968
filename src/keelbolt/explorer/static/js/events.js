// Shows a log entry as one line and in full.

import { h } from "./dom.js";
import { fullMoment, precise, shorten, stateLabel, stateName, STATES } from "./format.js";
import { masked, raw, tree } from "./json.js";
import { parts, plainText } from "./parts.js";
import { badge, copyButton, facts } from "./pieces.js";

export const KINDS = {
  message: { label: "Message", tone: "violet" },
  status: { label: "Status", tone: "busy" },
  said: { label: "Status", tone: "busy" },
  artifact: { label: "Artifact", tone: "good" },
  step: { label: "Step", tone: "ask" },
  attempt: { label: "Attempt", tone: "still" },
  steer: { label: "Steering", tone: "violet" },
  metadata: { label: "Metadata", tone: "still" },
  state: { label: "State", tone: "still" },
  cleanup: { label: "Cleanup", tone: "still" },
  error: { label: "Error", tone: "bad" },
  touch: { label: "Touch", tone: "still" },
};

export const kindOf = (entry) => KINDS[entry.kind] ?? { label: entry.kind, tone: "still" };

export const group = (entry) => (entry.kind === "said" ? "status" : entry.kind);

export function toneOf(entry) {
  if (group(entry) === "status") return STATES[stateName(entry.data.status.state)].tone;
  if (entry.kind === "step" && ["failed", "asked"].includes(entry.data.state)) return "bad";
  return kindOf(entry).tone;
}

// host:pid:incarnation
export function processName(worker) {
  const [host, pid] = String(worker ?? "").split(":");
  return pid ? `process ${pid} on ${host}` : String(worker ?? "");
}

const STEP = {
  started: "started",
  done: "done",
  failed: "failed",
  asked: "waiting for the user",
  answered: "the user answered",
  retry: "scheduled to run again",
  refused: "marked as failed by the user",
};

// ~sleep, ~ask, ~relay NAME, and details of a relay: ~.at …, ~.ask …, ~.artifact …
export const stepName = (name) =>
  name.startsWith("~sleep")
    ? "Sleep"
    : name.startsWith("~ask")
      ? "Question"
      : name.replace(/^~(\.\w+ ~)?relay /, "Relay ");

export function summary(entry) {
  const { kind, data } = entry;
  switch (kind) {
    case "message":
      return `${data.role === "ROLE_USER" ? "User" : "Agent"}: ${words(data)}`;
    case "status":
    case "said": {
      const text = words(data.status.message);
      return text ? `${stateLabel(data.status.state)}: ${text}` : stateLabel(data.status.state);
    }
    case "artifact": {
      const text = data.artifact.parts
        .map(
          (part) =>
            part.text ??
            (part.data !== undefined ? JSON.stringify(masked(part.data)) : (part.filename ?? part.url ?? "a file")),
        )
        .join("");
      return `${data.artifact.name ?? data.artifact.artifactId}${data.append ? " +" : ":"} ${text}${data.lastChunk ? "  ■" : ""}`;
    }
    case "attempt":
      return `Attempt ${data.attempt} of turn ${data.turn}, by ${processName(data.worker)}`;
    case "step":
      return `${stepName(data.step)}: ${STEP[data.state] ?? data.state}${data.error ? ` (${data.error})` : ""}`;
    case "steer":
      return `${data.kind}${data.source ? ` by ${data.source}` : ""}${data.reason ? `: ${data.reason}` : ""}`;
    case "metadata":
      return Object.keys(data).join(", ");
    case "state":
      return JSON.stringify(masked(data.value));
    case "cleanup":
      return data.due ? "Worker cleanup pending" : "Worker cleanup done";
    case "error": // only operators see the content
      return data.type ? `${data.type}: ${data.message}` : "An exception; details are visible to operators";
    default:
      return shorten(JSON.stringify(masked(data)) ?? "", 200);
  }
}

function words(message) {
  if (!message) return "";
  return shorten(
    plainText(message) ||
      (message.parts ?? [])
        .map((part) => (part.data !== undefined ? JSON.stringify(masked(part.data)) : (part.filename ?? "a file")))
        .join(" "),
    300,
  );
}

export const traceback = (data) => h("pre", { class: "traceback", tabindex: "0" }, data.traceback);

export function detail(entry, { href, start, actions }) {
  const { kind, data } = entry;
  const message = kind === "message" ? data : data.status?.message;
  const content = message
    ? parts(message.parts)
    : kind === "artifact"
      ? parts(data.artifact.parts)
      : kind === "error" && data.type
        ? traceback(data)
        : tree(data, { open: 3 });
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row" },
      h("h3", {}, `#${entry.seq} ${kindOf(entry).label}`),
      data.status && badge(data.status.state),
    ),
    facts([
      ["Time", `${fullMoment(entry.at)} (${precise(entry.at)})`],
      ["Since start", start],
      ["Process", kind === "attempt" ? data.worker : null],
      ["Artifact", kind === "artifact" ? data.artifact.artifactId : null],
    ]),
    content,
    h(
      "div",
      { class: "row tight" },
      actions,
      copyButton(() => new URL(href, location.href).href, "Copy link"),
    ),
    h("details", { class: "more" }, h("summary", {}, "Raw"), raw(entry, { name: `event-${entry.seq}.json` })),
  );
}
