// Gates at which turns wait: their questions, and forms to answer them.

import { h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { decision } from "../decision.js";
import { ask } from "../dialog.js";
import { shorten, shortId } from "../format.js";
import { tree } from "../json.js";
import { copyAs, empty, facts, problem, tag, time } from "../pieces.js";
import { link } from "../router.js";

const TONES = { resolved: "good", rejected: "bad", aborted: "bad", timeout: "bad" };

const asked = new WeakMap(); // the last request of each panel: the response of an earlier one is not shown

export async function showGates(state, panel, signal) {
  const call = ops("GET", "/gates", { query: { state } });
  const again = () => showGates(state, panel, signal);
  asked.set(panel, call);
  try {
    const { gates } = await send(call, { signal });
    if (asked.get(panel) !== call) return;
    replace(
      panel,
      h(
        "div",
        { class: "stack" },
        h(
          "div",
          { class: "row flush" },
          copyAs(call),
          h("button", { type: "button", class: "quiet small", onclick: again }, "Refresh"),
        ),
        gates.map((each) => gate(each, again)),
        !gates.length &&
          empty(
            state === "open" ? "No waiting turns" : "No settled gates",
            "A turn opens a gate with ctx.wait_for.",
          ),
      ),
    );
  } catch (error) {
    if (!signal.aborted && asked.get(panel) === call) replace(panel, problem(error, again));
  }
}

// A form that is on the page stays when its list is drawn again: it holds the user's input.
export function gate(each, again) {
  if (each.result) return settled(each);
  const shown = document.querySelector(`[data-gate="${CSS.escape(each.token)}"]`);
  const form = shown ?? waiting(each, again);
  form.dataset.gate = each.token;
  return form;
}

function content(each) {
  const task = each.about?.taskId;
  return [
    facts([
      ["Thread", h("a", { href: link(["turns", each.thread], { tenant: each.tenant }) }, shorten(each.thread, 60))],
      ["Tenant", each.tenant],
      ["Turn", each.turnId && h("span", { class: "mono" }, shortId(each.turnId))],
      ["Task", task && h("a", { href: link(["tasks", task]) }, "Open the task")],
      ["Asked", each.createdAt && time(each.createdAt)],
      ["Expires", each.deadline && time(each.deadline)],
      ["Settled", each.settledAt && time(each.settledAt)],
      ["Error", each.error],
    ]),
    each.payload !== null && each.payload !== undefined && tree(each.payload, { open: 2 }),
  ];
}

function settled(each) {
  return h(
    "article",
    { class: "card" },
    h("div", { class: "row" }, h("h2", {}, each.reason || "A gate"), tag(each.result, TONES[each.result] ?? "still")),
    ...content(each),
    each.value !== null && each.value !== undefined && tree({ answer: each.value }),
  );
}

function waiting(each, again) {
  const settle = (body) => ops("POST", `/gates/${encodeURIComponent(each.token)}`, { body });
  const valueOf = ({ value, text }) => (each.schema ? value : parsed(text));
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
  return decision({
    title: each.reason || "Waiting for an answer",
    content: content(each).reverse(),
    schema: each.schema,
    words: each.schema ? null : "Answer",
    onAnswer: async (given) => {
      await send(settle({ value: valueOf(given) }));
      again();
    },
    call: (given) => settle({ value: valueOf(given) }),
    refusals: [
      {
        label: "Reject",
        danger: true,
        onclick: refuse("reject", "Reject", "The turn receives the rejection and its reason."),
      },
      { label: "Abort", onclick: refuse("abort", "Abort", "The turn stops waiting.") },
    ],
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
