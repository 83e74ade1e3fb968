// A task that waits for its user: the question, the answers it proposes, and room for another one.

import { h, replace } from "../dom.js";
import { inDoubt, proposals, schemaOf } from "../answers.js";
import { rpc, send } from "../api.js";
import { predicted } from "../changes.js";
import { PAUSED } from "../format.js";
import { parts } from "../parts.js";
import { copyAs, field, problem } from "../pieces.js";
import { schemaForm, validate } from "../schema.js";

export function question(task, state, { mine, again }) {
  if (!PAUSED.includes(state)) return null;
  const message = task.status?.message;
  const doubt = inDoubt(message);
  const result = h("div", {});
  const text = h("textarea", { rows: "2", "aria-label": "Your answer" });
  const schema = schemaOf(message);
  const form = schema ? schemaForm(schema, () => {}) : null;
  const given = () => [...(text.value.trim() ? [{ text: text.value }] : []), ...(form ? [{ data: form.read() }] : [])];
  const ids = crypto.randomUUID();
  const call = (list) =>
    rpc("SendMessage", {
      message: { messageId: ids, role: "ROLE_USER", parts: list, taskId: task.id, contextId: task.contextId },
      configuration: { returnImmediately: true },
    });
  async function answer(list) {
    const wrong = form && list.some((part) => part.data) ? validate(form.read(), schema) : [];
    if (!list.length || wrong.length) {
      replace(
        result,
        problem({
          message: wrong.length
            ? wrong.map(({ path, text: each }) => `${path} ${each}`).join("; ")
            : "Write an answer first.",
        }),
      );
      return;
    }
    try {
      await send(call(list));
      again();
    } catch (error) {
      replace(result, problem(error));
    }
  }
  const offered = proposals(message);
  return h(
    "section",
    { class: `notice ${doubt ? "bad" : "ask"} question`, "aria-label": "The question" },
    h(
      "div",
      { class: "stack grow-box" },
      h(
        "h2",
        {},
        doubt ? "A step is in doubt" : state === "auth_required" ? "It needs a sign-in" : "It waits for an answer",
      ),
      message ? parts(message.parts.filter((part) => !part.data?.answers)) : h("p", {}, "It did not say for what."),
      predicted(message),
      mine
        ? [
            offered.length > 0 &&
              h(
                "div",
                { class: "row" },
                offered.map(({ label, parts: list, tone }) =>
                  h("button", { type: "button", class: tone, onclick: () => answer(list) }, label),
                ),
              ),
            form?.element,
            h(
              "form",
              {
                class: "stack",
                onsubmit: (event) => {
                  event.preventDefault();
                  answer(given());
                },
              },
              field(offered.length ? "Or in your own words" : "Answer", text),
              h(
                "div",
                { class: "row" },
                h("button", { class: offered.length ? "" : "primary" }, "Answer"),
                copyAs(() => call(given())),
              ),
            ),
            result,
          ]
        : h("p", { class: "dim" }, "Only its owner can answer it."),
    ),
  );
}
