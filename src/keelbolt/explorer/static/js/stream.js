// Server-sent events by fetch, because EventSource can't send a token. A lost connection resumes at the last event.

import { address, failure, finish, headers, remember, ApiError } from "./api.js";

const SILENCE_MS = 45_000; // the server sends a heartbeat every 15 s; a longer silence means a lost connection
const HIDDEN_MS = 20_000; // a hidden tab closes its connection: browsers allow six for all tabs together
const BUSY = [429, 502, 503, 504]; // responses that are worth a retry
const WAITS_MS = [300, 700, 1500, 3000, 5000, 8000];

// --------------------------------------------------------------------------------------------- connection status

const place = () => document.getElementById("connection");

let note = ""; // a problem to show although the connection is live

// Shows this text instead of *Live*; an empty text restores *Live*.
export function connectionNote(text) {
  if (text === note) return;
  note = text;
  const { state } = place().dataset;
  if (state === "live" || state === "silent") showStatus("live", "Live");
}

function showStatus(state, text) {
  if (state === "live" && note) [state, text] = ["silent", note];
  const element = place();
  if (element.dataset.state === state && element.textContent === text) return;
  element.dataset.state = state;
  element.textContent = text;
}

export const quietConnection = () => showStatus("", "");

// ------------------------------------------------------------------------------------------------------- parsing

export async function* events(response, onData = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  let id = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onData();
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (data.length) yield { id, data: JSON.parse(data.join("\n")) };
        data = [];
      } else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line.startsWith("id:")) id = line.slice(3).trim();
    }
  }
}

export async function open(call, { signal, onData } = {}) {
  const entry = remember({ ...call, stream: true });
  const started = performance.now();
  const response = await fetch(address(call), {
    method: call.method,
    headers: headers({ ...call, stream: true }),
    body: call.body === undefined ? undefined : JSON.stringify(call.body),
    signal,
    credentials: "same-origin",
    cache: "no-store",
  });
  finish(entry, started, response.status);
  const kind = response.headers.get("content-type") ?? "";
  if (!response.ok || !kind.startsWith("text/event-stream")) {
    const text = await response.text();
    finish(entry, started, response.status, text);
    let answer = null;
    try {
      answer = JSON.parse(text);
    } catch {
      /* not JSON: reported below */
    }
    if (answer?.error) throw failure(response.status, answer);
    throw new ApiError(`The agent returned status ${response.status}.`, { status: response.status });
  }
  return events(response, onData);
}

// Returns the result of an operation that streams its progress.
export async function drain(call) {
  let result;
  for await (const { data } of await open(call)) {
    if (typeof data?.error === "object" && data.error) throw failure(0, data);
    if (data?.result) result = data.result;
  }
  if (!result) throw new ApiError("The operation ended without a result; check whether it took effect.");
  return result;
}

// -------------------------------------------------------------------------------------------------------- following

// Follows a stream until `signal` aborts or `over()` returns true. `call(after)` returns the request.
export async function follow({ call, onEvent, onOpen = () => {}, over = () => false, signal, after = null }) {
  let tries = 0;
  let last = after;
  let before = false;
  while (!signal.aborted && !over()) {
    const silence = new AbortController();
    const away = hidden();
    let timer = 0;
    const onData = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
    };
    try {
      onData();
      const stream = await open(call(last), { signal: AbortSignal.any([signal, silence.signal, away.signal]), onData });
      showStatus("live", before && tries > 1 ? "Reconnected" : "Live");
      setTimeout(() => {
        if (!signal.aborted && place().dataset.state === "live") showStatus("live", "Live");
      }, 4000);
      if (before) onOpen();
      before = true;
      tries = 0;
      for await (const event of stream) {
        if (event.id) last = event.id;
        if (typeof event.data?.error === "object" && event.data.error && event.data.seq === undefined)
          throw failure(0, event.data);
        onEvent(event.data, event.id);
      }
      if (over()) break;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && !BUSY.includes(error.status)) throw error;
    } finally {
      clearTimeout(timer);
      away.stop();
    }
    if (signal.aborted) return;
    if (away.signal.aborted) {
      showStatus("", "Paused while hidden");
      await seen(signal);
      tries = 0;
      continue;
    }
    const wait = WAITS_MS[Math.min(tries, WAITS_MS.length - 1)];
    tries += 1;
    if (tries > 1 || !navigator.onLine) showStatus("lost", "Connection lost, reconnecting…");
    await pause(wait, signal);
  }
  if (!signal.aborted) showStatus("", "");
}

// Returns a signal that aborts when the tab has been hidden for a while.
function hidden() {
  const controller = new AbortController();
  let timer = 0;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => controller.abort(), HIDDEN_MS);
  };
  document.addEventListener("visibilitychange", look);
  look();
  return {
    signal: controller.signal,
    stop: () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    },
  };
}

function seen(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
    look();
  });
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener("online", done, { once: true });
    signal.addEventListener("abort", done, { once: true });
  });
}
