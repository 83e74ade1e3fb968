// Answers that a user can give to a paused task with one button.

import { plainText } from "./parts.js";

const NAMED = {
  approve: "Approve",
  reject: "Reject",
  retry: "Run it again",
  done: "It took effect",
  failed: "It had no effect; fail it",
};

// Returns [{label, parts, tone}]: the choices that the question proposes, or approve and reject.
export function proposals(message) {
  const data = (message?.parts ?? []).map((part) => part?.data).find((each) => each && typeof each === "object") ?? {};
  const offered = [data.answers, data.choices, data.options].find(
    (each) => Array.isArray(each) && each.length && each.length <= 12,
  );
  if (offered) return offered.map((each) => proposal(typeof each === "object" ? each : { value: each }));
  if (isApproval(message, data)) return [proposal({ value: "approve" }), proposal({ value: "reject" })];
  return [];
}

function proposal({ value, label, title }) {
  const text = String(value ?? label ?? title ?? "");
  return {
    text,
    label: label ?? title ?? NAMED[text] ?? text,
    parts: [{ text }],
    tone: text === "approve" ? "primary" : text === "reject" ? "danger" : "",
  };
}

export function isApproval(message, data = {}) {
  return Object.keys(data).some((name) => /approv/i.test(name)) || /\bapprov(e|al)\b/i.test(plainText(message));
}

export function schemaOf(message) {
  const data = (message?.parts ?? []).map((part) => part?.data).find((each) => each && typeof each === "object");
  return data?.schema ?? data?.inputSchema ?? data?.requestedSchema ?? null;
}

export const inDoubt = (message) => (message?.parts ?? []).some((part) => part?.data?.inDoubt === true);
