// Attempts, steps, artifacts, steering and webhooks over time, by process.

import { chart } from "../chart.js";
import { processName, stepName } from "../events.js";
import { ENDED, PAUSED, plural, stateName } from "../format.js";
import { empty } from "../pieces.js";

// Bars: {lane, label, about, from, to, tone, seq, open}. Times are milliseconds.
export function bars(entries, webhooks, now) {
  const found = [];
  const artifacts = new Map();
  let attempt = null;
  let steps = new Map();
  let waits = null;
  let alive = 0; // time of the last entry by the process
  const close = (bar, at, note) => {
    if (!bar || bar.to !== null) return;
    bar.to = at;
    if (note) bar.about += `, ${note}`;
  };
  for (const { seq, kind, data, at: text } of entries) {
    const at = Date.parse(text);
    if (kind === "attempt") alive = Math.max(alive, attempt?.from ?? 0);
    else alive = at;
    if (kind === "attempt") {
      const lost = attempt && attempt.to === null;
      close(attempt, at, lost ? "taken over" : "");
      if (lost) Object.assign(attempt, { tone: "bad", silent: alive });
      close(waits, at);
      for (const step of steps.values()) {
        if (step.to !== null) continue;
        step.tone = "bad";
        close(step, at, "end not recorded: in doubt");
      }
      attempt = {
        lane: "attempt",
        label: `Turn ${data.turn}, attempt ${data.attempt}`,
        about: processName(data.worker),
        from: at,
        to: null,
        tone: "busy",
        seq,
      };
      found.push(attempt);
      steps = new Map();
    } else if (kind === "step") {
      if (data.state === "started") {
        const step = { lane: "step", label: stepName(data.step), about: "step", from: at, to: null, tone: "ask", seq };
        steps.set(data.step, step);
        found.push(step);
      } else {
        const step = steps.get(data.step) ?? {
          lane: "step",
          label: stepName(data.step),
          about: "step",
          from: at,
          to: null,
          tone: "ask",
          seq,
        };
        if (!steps.has(data.step)) found.push(step);
        step.tone =
          data.state === "done" ? "good" : ["failed", "asked", "refused"].includes(data.state) ? "bad" : "ask";
        close(step, at, data.state);
      }
    } else if (kind === "artifact") {
      const id = data.artifact.artifactId;
      const before = artifacts.get(id);
      if (before && data.append) {
        before.to = at;
        before.count += 1;
        before.about = plural(before.count, "chunk");
      } else {
        const bar = {
          lane: "artifact",
          label: data.artifact.name ?? id,
          about: "1 chunk",
          count: 1,
          from: at,
          to: at,
          tone: "violet",
          seq,
        };
        artifacts.set(id, bar);
        found.push(bar);
      }
    } else if (kind === "steer") {
      found.push({
        lane: "steer",
        label: data.kind,
        about: [data.source, data.reason].filter(Boolean).join(": ") || "steering",
        from: at,
        to: at,
        tone: "violet",
        seq,
      });
    } else if (kind === "status" || kind === "said") {
      const state = stateName(data.status.state);
      if (PAUSED.includes(state)) {
        close(attempt, at, "asked");
        waits = {
          lane: "wait",
          label: "Waiting for an answer",
          about: state.replace("_", " "),
          from: at,
          to: null,
          tone: "waits",
          seq,
        };
        found.push(waits);
      } else if (ENDED.includes(state)) {
        close(attempt, at, state);
        if (attempt) attempt.tone = state === "failed" ? "bad" : state === "completed" ? "good" : "still";
        close(waits, at);
      } else if (state === "submitted") close(waits, at);
    }
  }
  for (const bar of found) {
    bar.open = bar.to === null;
    if (bar.open) bar.to = Math.max(now, bar.from);
  }
  for (const hook of webhooks ?? []) {
    const delivered = entries.findLast(({ seq }) => seq <= hook.cursor);
    const first = entries[0];
    if (!first) continue;
    found.push({
      lane: "webhook",
      label: `Webhook ${hook.id}`,
      about:
        hook.status === "failed"
          ? `failed: ${hook.error}`
          : hook.error
            ? `failing: ${hook.error}`
            : `delivered up to #${hook.cursor}`,
      from: Date.parse(first.at),
      to: Date.parse((delivered ?? first).at),
      tone: hook.error ? "bad" : "still",
      seq: delivered?.seq ?? first.seq,
    });
  }
  return found;
}

export function waterfall({ log, webhooks, onEvent }) {
  const list = bars(log.entries, webhooks, log.ended ? Date.parse(log.entries.at(-1)?.at) : Date.now());
  if (!list.length) return empty("Nothing to draw yet", "Attempts, steps and artifacts appear here as they happen.");
  const attempts = list.filter(({ lane }) => lane === "attempt").length;
  const processes = new Set(log.entries.filter(({ kind }) => kind === "attempt").map(({ data }) => data.worker));
  return chart(list, `${plural(attempts, "attempt")} in ${plural(processes.size, "process", "processes")}`, onEvent);
}
