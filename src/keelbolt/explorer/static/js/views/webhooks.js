// The webhooks of a task: how far each was told, what went wrong, and another try.

import { h } from "../dom.js";
import { ask } from "../dialog.js";
import { number } from "../format.js";
import { empty, facts, tag, time } from "../pieces.js";

export function webhookList(webhooks, { call, again }) {
  if (!webhooks.length) return empty("No webhooks", "Nobody asked to be told about this task.");
  return h(
    "div",
    { class: "stack" },
    webhooks.map((hook) =>
      h(
        "article",
        { class: "card" },
        h("div", { class: "row" }, h("h3", { class: "break" }, hook.url), state(hook)),
        hook.error && h("p", { class: "bad-ink break" }, hook.error),
        facts([
          ["Id", hook.id],
          ["Told up to", `#${hook.cursor}`],
          ["Delivered", number(hook.delivered)],
          ["Last try", hook.triedAt && time(hook.triedAt)],
          ["It answered", hook.triedAt && (hook.httpStatus ? `HTTP ${hook.httpStatus}` : "nothing")],
          ["Failures in a row", hook.failures || null],
          ["Failing since", hook.failingSince && time(hook.failingSince)],
          ["Next try", hook.retryAt && time(hook.retryAt)],
          ["Authentication", hook.authentication?.scheme],
        ]),
        h(
          "div",
          { class: "row" },
          h(
            "button",
            {
              type: "button",
              onclick: () =>
                ask({
                  title: "Deliver again",
                  text: "From an entry on, or where the webhook stands. Receivers know repeats by their ids.",
                  submit: "Deliver",
                  fields: [
                    {
                      name: "after",
                      label: "After entry",
                      type: "number",
                      hint: "0 repeats everything; empty goes on where it stands.",
                    },
                  ],
                  call: ({ after }) =>
                    call(
                      "POST",
                      `/webhooks/${encodeURIComponent(hook.id)}/replay`,
                      after === undefined ? {} : { after },
                    ),
                  done: again,
                }),
            },
            "Deliver again",
          ),
        ),
      ),
    ),
  );
}

export const state = (hook) =>
  tag(
    hook.status === "failed" ? "given up" : hook.failures ? "failing" : "active",
    hook.status === "failed" || hook.failures ? "bad" : "good",
  );
