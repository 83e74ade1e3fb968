// Messages and results of a task in order: [{seq, kind, …, size}]. `size` grows when an item changes.

import { ENDED, PAUSED, stateName } from "./format.js";

export function conversation(log, about) {
  return log.entries.length && log.floor === 0 ? fromLog(log.entries) : fromTask(about.task);
}

function fromLog(entries) {
  const found = [];
  const artifacts = new Map();
  for (const { seq, kind, data, at } of entries) {
    if (kind === "message") found.push({ seq, kind: "message", message: data, at, size: 0 });
    else if (kind === "steer") found.push({ seq, kind: "steer", steer: data, at, size: 0 });
    else if (kind === "artifact") {
      const id = data.artifact.artifactId;
      const before = artifacts.get(id);
      if (before) {
        const parts = data.append ? [...before.artifact.parts, ...data.artifact.parts] : data.artifact.parts;
        Object.assign(before, { artifact: { ...before.artifact, ...data.artifact, parts }, size: before.size + 1 });
      } else {
        const item = { seq, kind: "artifact", artifact: data.artifact, at, size: 0 };
        artifacts.set(id, item);
        found.push(item);
      }
    } else if (data?.status?.message && hasWords(data.status.state)) {
      found.push({
        seq,
        kind: "message",
        message: data.status.message,
        state: stateName(data.status.state),
        at,
        size: 0,
      });
    }
  }
  return found;
}

// The stored task replaces the trimmed part of the log. Artifacts come after messages.
function fromTask(task) {
  const messages = (task.history ?? []).map((message, index) => ({
    seq: -index - 1,
    kind: "message",
    message,
    size: 0,
  }));
  const made = (task.artifacts ?? []).map((artifact) => ({
    seq: `artifact ${artifact.artifactId}`,
    kind: "artifact",
    artifact,
    size: 0,
  }));
  const { message, state } = task.status ?? {};
  const last =
    message && hasWords(state) && !messages.some((each) => each.message.messageId === message.messageId)
      ? [{ seq: "status", kind: "message", message, state: stateName(state), size: 0 }]
      : [];
  return [...messages, ...made, ...last];
}

// Messages of a running task are progress; questions and the final message belong to the conversation.
const hasWords = (state) => [...ENDED, ...PAUSED].includes(stateName(state));
