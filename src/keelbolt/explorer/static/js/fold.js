// Computes a task from its log up to any entry, as the server does, for the replay.

import { stateName } from "./format.js";

export function fold(entries, through = Infinity) {
  const task = {
    status: null,
    state: "submitted",
    history: [],
    artifacts: new Map(),
    metadata: {},
    turn: 0,
    runs: 0,
    attempts: [],
    steps: new Map(),
    steered: [],
  };
  for (const entry of entries) {
    if (entry.seq > through) break;
    take(task, entry);
  }
  return task;
}

function take(task, { kind, data, at, seq }) {
  switch (kind) {
    case "message":
      task.history.push(data);
      break;
    case "said":
    case "status":
      task.status = data.status;
      task.state = stateName(data.status.state);
      if (kind === "said" && data.status.message) task.history.push(data.status.message);
      break;
    case "artifact": {
      const before = task.artifacts.get(data.artifact.artifactId);
      if (before && data.append) {
        Object.assign(before, { ...data.artifact, parts: before.parts });
        before.parts.push(...data.artifact.parts);
      } else task.artifacts.set(data.artifact.artifactId, { ...data.artifact, parts: [...data.artifact.parts] });
      break;
    }
    case "metadata":
      Object.assign(task.metadata, data);
      break;
    case "attempt":
      if (data.turn !== task.turn) {
        task.turn = data.turn;
        task.runs = 0;
        task.steps = new Map();
      }
      task.runs += 1;
      task.attempts.push({ ...data, at, seq });
      break;
    case "step":
      task.steps.set(data.step, { state: data.state, run: task.runs, result: data.result, at });
      break;
    case "steer":
      task.steered.push({ ...data, at });
      break;
    default:
  }
}

// Returns the folded task as plain JSON, for comparison.
export function plain(task) {
  return {
    status: task.status,
    turn: task.turn,
    runs: task.runs,
    steps: Object.fromEntries(
      [...task.steps].map(([name, { state, result }]) => [name, result === undefined ? { state } : { state, result }]),
    ),
    artifacts: Object.fromEntries(
      [...task.artifacts].map(([id, artifact]) => [id, { ...artifact, parts: joined(artifact.parts) }]),
    ),
    history: task.history,
    metadata: task.metadata,
  };
}

function joined(parts) {
  if (parts.every((part) => typeof part?.text === "string")) return [{ text: parts.map((part) => part.text).join("") }];
  return parts;
}

export const ends = ({ kind, data }) =>
  (kind === "status" || kind === "said") &&
  ["completed", "failed", "canceled", "rejected"].includes(stateName(data.status.state));
