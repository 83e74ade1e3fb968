// Calls of the agent. A call is plain data, so the page can show it as a command before and after it is sent.

import { BASE, FOREIGN, endpoint } from "./agents.js";

export { BASE } from "./agents.js";
export const OPS = "/keelbolt/v1";
const KEPT = 100; // number of calls in the call log
const KEPT_CHARACTERS = 200_000; // limit of each stored response

// ------------------------------------------------------------------------------------------------ credentials

const STORED = `keelbolt.credentials ${BASE}`; // sessionStorage: per tab and agent

export function credentials() {
  try {
    return JSON.parse(sessionStorage.getItem(STORED) ?? "null");
  } catch {
    return null;
  }
}

export function signIn(header, value) {
  if (value) sessionStorage.setItem(STORED, JSON.stringify({ header, value }));
  else sessionStorage.removeItem(STORED);
  listeners.forEach((listen) => listen());
}

const listeners = new Set();
export const onSignIn = (listen) => listeners.add(listen);

// ------------------------------------------------------------------------------------------------------ calls

export const ops = (method, path, { query = {}, body } = {}) => ({ method, path: OPS + path, query, body });

let rpcId = 0;
export function rpc(method, params, { stream = false } = {}) {
  rpcId += 1;
  return {
    method: "POST",
    path: "/",
    query: {},
    body: { jsonrpc: "2.0", id: rpcId, method, params },
    rpc: method,
    stream,
    key: method.startsWith("Send") ? crypto.randomUUID() : undefined, // a repeated send creates no second task
  };
}

export function address(call) {
  const url = new URL(call.rpc ? endpoint() : BASE + call.path);
  for (const [name, value] of Object.entries(call.query ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url.href;
}

export function headers(call, { secret = true } = {}) {
  const found = {};
  if (call.body !== undefined) found["Content-Type"] = "application/json";
  if (call.rpc) found["A2A-Version"] = "1.0";
  if (call.stream) found.Accept = "text/event-stream";
  if (call.after) found["Last-Event-ID"] = String(call.after);
  // Other agents list the headers that cross-origin pages may send; Idempotency-Key is usually missing there.
  if (call.key && secret && !FOREIGN) found["Idempotency-Key"] = call.key; // omitted in copied commands, which may run twice
  const known = credentials();
  if (known) found[known.header] = secret ? known.value : known.header === "Authorization" ? "Bearer $TOKEN" : "$TOKEN";
  return found;
}

export class ApiError extends Error {
  constructor(message, { status = 0, reason = "", answer } = {}) {
    super(message);
    Object.assign(this, { status, reason, answer });
  }
}

// -------------------------------------------------------------------------------------------------- call log

export const log = [];
const watchers = new Set();
export const onCall = (watch) => watchers.add(watch);

export function remember(call) {
  const entry = {
    call,
    at: new Date().toISOString(),
    status: null,
    milliseconds: null,
    answer: undefined,
    clipped: false,
  };
  log.unshift(entry);
  log.splice(KEPT);
  watchers.forEach((watch) => watch(entry));
  return entry;
}

export function finish(entry, started, status, text) {
  entry.status = status;
  entry.milliseconds = performance.now() - started;
  if (text !== undefined) {
    entry.clipped = text.length > KEPT_CHARACTERS;
    entry.answer = text.slice(0, KEPT_CHARACTERS);
  }
  watchers.forEach((watch) => watch(entry));
}

// ---------------------------------------------------------------------------------------------------- sending

export async function send(call, { signal, quiet = false } = {}) {
  const entry = quiet ? {} : remember(call);
  const started = performance.now();
  let response;
  let text;
  try {
    response = await fetch(address(call), {
      method: call.method,
      headers: headers(call),
      body: call.body === undefined ? undefined : JSON.stringify(call.body),
      signal,
      credentials: "same-origin",
      cache: "no-store",
    });
    text = await response.text();
  } catch (error) {
    finish(entry, started, "failed", String(error));
    if (error.name === "AbortError") throw error;
    throw new ApiError(
      FOREIGN
        ? `${BASE} can't be reached from this page. Is it running, and does it allow the origin ${location.origin} (CORS)?`
        : "The agent can't be reached. Is it running? Retry the action once it is.",
      { reason: "UNREACHABLE" },
    );
  }
  finish(entry, started, response.status, text);
  return read(response.status, text);
}

export function read(status, text) {
  let answer;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    answer = text;
  }
  if (typeof answer?.error === "object" && answer.error) throw failure(status, answer); // `error` may be data
  if (status >= 400) throw new ApiError(`The agent returned status ${status}.`, { status, answer });
  return answer?.jsonrpc ? answer.result : answer;
}

// Both bindings return {"error": {"message", …}}; the details contain a machine-readable reason.
export function failure(status, answer) {
  const { message, data, details } = answer.error;
  const reason = [details, data].flat().find((each) => each?.reason)?.reason ?? "";
  return new ApiError(message || `The agent returned status ${status}.`, { status, reason, answer });
}
