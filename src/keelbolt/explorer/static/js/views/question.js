// The question of a task that waits for its user.

import { rpc, send } from "../api.js";
import { questionOf } from "../decision.js";
import { PAUSED } from "../format.js";

export function question(task, state, { mine, again }) {
  if (!PAUSED.includes(state)) return null;
  const messageId = crypto.randomUUID();
  const call = (parts) =>
    rpc("SendMessage", {
      message: { messageId, role: "ROLE_USER", parts, taskId: task.id, contextId: task.contextId },
      configuration: { returnImmediately: true },
    });
  return questionOf(task.status?.message, state, {
    call,
    closed: mine ? "" : "Only the owner of the task can answer.",
    onAnswer: async (parts) => {
      await send(call(parts));
      again();
    },
  });
}
