// What was said and made in a task, in order: [{seq, kind, …, size}]. `size` grows when the item changes.

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

// Where the log was trimmed: the task as it is kept. Artifacts stand behind what was said.
function fromTask(task) {
  const said = (task.history ?? []).map((message, index) => ({ seq: -index - 1, kind: "message", message, size: 0 }));
  const made = (task.artifacts ?? []).map((artifact) => ({
    seq: `artifact ${artifact.artifactId}`,
    kind: "artifact",
    artifact,
    size: 0,
  }));
  const { message, state } = task.status ?? {};
  const last =
    message && hasWords(state) && !said.some((each) => each.message.messageId === message.messageId)
      ? [{ seq: "status", kind: "message", message, state: stateName(state), size: 0 }]
      : [];
  return [...said, ...made, ...last];
}

// Messages while it works are progress; questions and the last word belong to the conversation.
const hasWords = (state) => [...ENDED, ...PAUSED].includes(stateName(state));
