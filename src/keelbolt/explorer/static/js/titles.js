// A short title of a task: the first text of its user, or a summary of the message's other parts.

import { ops, send } from "./api.js";
import { shorten } from "./format.js";
import { masked } from "./json.js";
import { plainText } from "./parts.js";

export function titleOf(message, skill = "") {
  const text = plainText(message).trim().split("\n")[0];
  if (text) return shorten(text, 120);
  const part = message?.parts?.find((each) => each && ("data" in each || each.filename || each.url));
  const about = part && ("data" in part ? values(part.data) : (part.filename ?? part.url));
  return shorten([skill, about].filter(Boolean).join(": ") || "Task", 120);
}

function values(data) {
  const shown = masked(data);
  if (!shown || typeof shown !== "object") return String(shown);
  return Object.entries(shown)
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}

export const skillOf = (message) => (typeof message?.metadata?.skillId === "string" ? message.metadata.skillId : "");

export const isOpening = ({ kind, data }) => kind === "message" && data.role === "ROLE_USER";

const known = new Map();

// Returns the title of another task from the beginning of its log, or its id if the log can't be read.
export async function titleById(id, ownerQuery) {
  if (!known.has(id)) {
    const call = ops("GET", `/tasks/${encodeURIComponent(id)}/log`, { query: { ...ownerQuery, limit: 10 } });
    const page = await send(call, { quiet: true }).catch(() => null);
    const message = page?.entries.find(isOpening)?.data;
    known.set(id, message ? titleOf(message, skillOf(message)) : id);
  }
  return known.get(id);
}
