// Shows whether the process that runs a task is alive: a countdown without heartbeats, then the takeover.

import { announce, h, replace } from "../dom.js";
import { processName } from "../events.js";
import { duration } from "../format.js";
import { connectionNote } from "../stream.js";

const TICK_MS = 200;
const ASK_MS = 400; // interval of requests while a renewal is overdue
const TAKEN_MS = 20_000; // how long the page shows the takeover

const named = (worker) => processName(worker).replace(/^p/, "P");

// `look()` requests the task again; the caller passes the response to `update`.
export function liveness({ log, look, signal }) {
  const element = h("div", {});
  let lease = null; // {holder, ends, whole, beat}; `ends` uses the clock of this page
  let asked = 0;
  let silent = false; // a renewal of the lease is overdue
  let lost = null; // {holder, since}: the process without heartbeats, and the time of its last one
  let taken = null; // {at, text}
  let lastEntryAt = 0; // time of the last entry by the process

  // Takes the current state of the task, including its lease.
  function update(about) {
    const work = about.work;
    const before = lease;
    lease =
      work?.holder && Number.isFinite(work.leaseIn) && work.leaseSeconds
        ? {
            holder: work.holder,
            ends: performance.now() + work.leaseIn * 1000,
            whole: work.leaseSeconds * 1000,
            beat: (work.heartbeatSeconds ?? work.leaseSeconds / 3) * 1000,
          }
        : null;
    if (lost && lease && lease.holder !== lost.holder) takenOver(lease.holder);
    else if (before && lease?.holder === before.holder && lease.ends > before.ends + ASK_MS) lost = null; // alive
    silent = Boolean(lease) && silence() > lease.beat + Math.min(1000, lease.beat / 4);
    draw();
  }

  function takenOver(holder) {
    const after = duration(performance.now() - Math.max(lost.since, lastEntryAt));
    taken = {
      at: performance.now(),
      text: `${named(holder)} took over, ${after} after ${processName(lost.holder)} stopped responding.`,
    };
    announce(taken.text);
    lost = null;
  }

  // Takes a log entry: of the process that runs the task, or the first entry of the next process.
  function entry({ kind, data }) {
    if (kind === "attempt") attempt(data.worker);
    else if (!["steer", "message"].includes(kind)) lastEntryAt = performance.now();
  }

  function attempt(worker) {
    if (lost && worker !== lost.holder) takenOver(worker);
    else if (lease && worker !== lease.holder) {
      // The takeover came before the countdown: some engines notice the death of a process and end its lease at once.
      taken = { at: performance.now(), text: `${named(worker)} took over from ${processName(lease.holder)}.` };
      announce(taken.text);
    }
    lease = null;
    draw();
  }

  const silence = () => performance.now() - (lease.ends - lease.whole);

  function draw() {
    if (signal.aborted) return;
    const now = performance.now();
    if (!lease || log.ended) silent = false;
    if (silent && lost?.holder !== lease.holder) {
      lost = { holder: lease.holder, since: lease.ends - lease.whole };
      announce(`${named(lease.holder)} sends no heartbeats`);
    }
    if (taken && now - taken.at > TAKEN_MS) taken = null;
    connectionNote(silent ? "No heartbeats" : "");
    if (silent) replace(element, countdown(lease, Math.min(silence(), now - lastEntryAt), now));
    else replace(element, taken && !log.ended && h("p", { class: "notice busy" }, h("span", {}, taken.text)));
  }

  const ticking = setInterval(() => {
    if (document.hidden || !lease || log.ended) {
      if (taken) draw();
      return;
    }
    // A renewal is overdue: request the current lease.
    if (silence() > lease.beat && performance.now() - asked > ASK_MS) {
      asked = performance.now();
      look();
    }
    draw();
  }, TICK_MS);
  signal.addEventListener("abort", () => {
    clearInterval(ticking);
    connectionNote("");
  });
  return { element, update, entry };
}

function countdown(lease, silence, now) {
  const left = lease.ends - now;
  return h(
    "div",
    { class: "notice ask countdown" },
    h(
      "p",
      {},
      h("strong", {}, `${named(lease.holder)} has sent no heartbeat for ${tenths(silence)}. `),
      left > 0
        ? `Another process takes over in ${tenths(left)}.`
        : "Its lease has expired; the next free process takes over.",
    ),
    h("progress", {
      max: String(lease.whole),
      value: Math.max(0, left),
      "aria-label": "Time until takeover",
    }),
  );
}

const tenths = (milliseconds) => `${(Math.max(0, milliseconds) / 1000).toFixed(1)} s`;
