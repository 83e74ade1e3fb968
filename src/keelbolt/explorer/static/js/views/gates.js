// Turns that wait: the gates at which they stand, what each asks, and an answer.

import { h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { ask } from "../dialog.js";
import { shorten, shortId } from "../format.js";
import { tree } from "../json.js";
import { copyAs, empty, facts, field, problem, tag, time } from "../pieces.js";
import { link } from "../router.js";
import { schemaForm, validate } from "../schema.js";

const TONES = { resolved: "good", rejected: "bad", aborted: "bad", timeout: "bad" };

export async function showGates(state, panel, signal) {
  const call = ops("GET", "/gates", { query: { state } });
  const again = () => showGates(state, panel, signal);
  try {
    const { gates } = await send(call, { signal });
    replace(
      panel,
      h(
        "div",
        { class: "stack" },
        h(
          "div",
          { class: "row flush" },
          copyAs(call),
          h("button", { type: "button", class: "quiet small", onclick: again }, "Look again"),
        ),
        gates.map((each) => gate(each, again)),
        !gates.length &&
          empty(
            state === "open" ? "No turn waits" : "No gate was settled yet",
            "Turns wait at a gate by ctx.wait_for.",
          ),
      ),
    );
  } catch (error) {
    if (!signal.aborted) replace(panel, problem(error, again));
  }
}

export function gate(each, again) {
  const task = each.about?.taskId;
  return h(
    "article",
    { class: "card" },
    h(
      "div",
      { class: "row" },
      h("h2", {}, each.reason || "A gate"),
      each.result ? tag(each.result, TONES[each.result] ?? "still") : tag("waiting", "ask"),
    ),
    facts([
      ["Thread", h("a", { href: link(["turns", each.thread], { tenant: each.tenant }) }, shorten(each.thread, 60))],
      ["Tenant", each.tenant],
      ["Turn", each.turnId && h("span", { class: "mono" }, shortId(each.turnId))],
      ["Task", task && h("a", { class: "mono", href: link(["tasks", task]) }, shortId(task))],
      ["Asked", each.createdAt && time(each.createdAt)],
      ["Until", each.deadline && time(each.deadline)],
      ["Settled", each.settledAt && time(each.settledAt)],
      ["Error", each.error],
    ]),
    each.payload !== null && each.payload !== undefined && tree(each.payload, { open: 2 }),
    each.result ? each.value !== null && each.value !== undefined && tree({ answer: each.value }) : answer(each, again),
  );
}

function answer(each, again) {
  const settle = (body) => ops("POST", `/gates/${encodeURIComponent(each.token)}`, { body });
  const schema = each.schema;
  const form = schema?.properties ? schemaForm(schema, () => {}) : null;
  const text = h("textarea", {
    rows: "2",
    class: "mono",
    placeholder: schema?.type ? `${schema.type}, as JSON` : "JSON, or words",
  });
  const wrong = h("div", {});
  const value = () => (form ? form.read() : parsed(text.value));
  async function resolve(event) {
    event.preventDefault();
    const problems = schema ? validate(value(), schema) : [];
    try {
      if (problems.length) throw new Error(problems.map((one) => `${one.path} ${one.text}`).join("; "));
      await send(settle({ value: value() }));
      again();
    } catch (error) {
      replace(wrong, problem(error));
    }
  }
  const refuse = (kind, title, words) => () =>
    ask({
      title,
      text: words,
      submit: title,
      danger: true,
      fields: [{ name: "reason", label: "Reason" }],
      call: ({ reason }) => settle({ answer: kind, reason }),
      done: again,
    });
  return h(
    "form",
    { class: "stack", onsubmit: resolve },
    form ? form.element : field("Answer", text),
    wrong,
    h(
      "div",
      { class: "row" },
      h("button", { class: "primary" }, "Answer"),
      h(
        "button",
        {
          type: "button",
          class: "danger",
          onclick: refuse("reject", "Reject", "The turn is told that it was refused."),
        },
        "Reject",
      ),
      h("button", { type: "button", onclick: refuse("abort", "Abort", "The turn stops waiting.") }, "Abort"),
      copyAs(() => settle({ value: value() })),
    ),
  );
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
