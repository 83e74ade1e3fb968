// Bars of a flow and its planner over time: pairs the start and end events of nodes, steps and tool calls.

const BEGINS = /[_-]?(start|started|begin)$/i;
const ENDS =
  /[_-]?(success|succeeded|complete|completed|end|ended|finish|finished|result|error|failed|timeout|cancelled|canceled)$/i;
const BAD = /error|fail|timeout|cancel/i;

// Returns the bars for a chart. `entries` are the entries of flow and planner; `of` names their source.
export function traceBars(entries) {
  const found = [];
  const open = new Map();
  for (const { seq, at, data, of } of entries) {
    const name = String(data?.kind ?? data?.event_type ?? "event");
    const moment = typeof data?.ts === "number" ? data.ts * 1000 : Date.parse(at);
    const base = name.replace(BEGINS, "").replace(ENDS, "");
    const what =
      data?.node_name ?? data?.extra?.tool_name ?? (data?.trajectory_step ? `step ${data.trajectory_step}` : base);
    const key = JSON.stringify([of, base, data?.node_id ?? what, data?.trajectory_step ?? 0]);
    const tone = BAD.test(name) ? "bad" : of === "planner" ? "violet" : "good";
    const bar = {
      lane: of,
      label: String(what),
      about: `${of}, ${name.replaceAll("_", " ")}`,
      from: moment,
      to: moment,
      tone,
      seq,
    };
    if (BEGINS.test(name)) {
      open.set(key, { ...bar, open: true, tone: "busy" });
      found.push(open.get(key));
    } else if (ENDS.test(name) && open.has(key)) {
      Object.assign(open.get(key), { to: moment, open: false, tone, about: bar.about });
      open.delete(key);
    } else {
      const latency = Number(data?.latency_ms ?? data?.payload?.latency_ms) || 0;
      found.push({ ...bar, from: moment - latency });
    }
  }
  const last = Math.max(...found.map(({ to }) => to));
  for (const bar of open.values()) bar.to = last;
  return found.sort((one, other) => one.from - other.from);
}
