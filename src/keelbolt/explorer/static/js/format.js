// Formats of times, sizes and states.

export const STATES = {
  submitted: { label: "Submitted", tone: "still" },
  working: { label: "Working", tone: "busy" },
  input_required: { label: "Needs input", tone: "ask" },
  auth_required: { label: "Needs sign-in", tone: "ask" },
  completed: { label: "Completed", tone: "good" },
  failed: { label: "Failed", tone: "bad" },
  canceled: { label: "Canceled", tone: "still" },
  rejected: { label: "Rejected", tone: "bad" },
  unspecified: { label: "Unknown", tone: "still" },
};

export const ENDED = ["completed", "failed", "canceled", "rejected"];
export const PAUSED = ["input_required", "auth_required"];

// TASK_STATE_INPUT_REQUIRED (1.0), input-required (0.3) and input_required are the same state.
export function stateName(text) {
  const name = String(text ?? "")
    .replace(/^TASK_STATE_/, "")
    .replaceAll("-", "_")
    .toLowerCase();
  return name in STATES ? name : "unspecified";
}

export const stateLabel = (text) => STATES[stateName(text)].label;

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function moment(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text ?? "");
  const today = new Date().toDateString() === at.toDateString();
  return today ? clock.format(at) : `${day.format(at)}, ${clock.format(at)}`;
}

export function precise(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : `${clock.format(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function fullMoment(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : full.format(at);
}

export function ago(text, now = Date.now()) {
  const seconds = Math.round((now - new Date(text).getTime()) / 1000);
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return moment(text);
}

export function duration(milliseconds) {
  if (!Number.isFinite(milliseconds) || milliseconds < 0) return "";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return two(seconds, 60, "min", 1, "s");
  if (seconds < 86400) return two(seconds, 3600, "h", 60, "min");
  return two(seconds, 86400, "d", 3600, "h");
}

function two(seconds, large, name, small, other) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${name}${rest ? ` ${rest} ${other}` : ""}`;
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "";
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

export const number = (count) => new Intl.NumberFormat().format(count);

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// Ids begin with the time, so their ends differ most.
export const shortId = (id) => (id.length > 13 ? `…${id.slice(-8)}` : id);
