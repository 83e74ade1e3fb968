// The webhooks of a task: how far each was told, what went wrong, and another try.

import { h } from "../dom.js";
import { ask } from "../dialog.js";
import { number } from "../format.js";
import { empty, facts, tag, time } from "../pieces.js";

export function webhookList(webhooks, { call, again }) {
  if (!webhooks.length) return empty("No webhooks", "No client registered a webhook for this task.");
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
          ["Delivered up to", `#${hook.cursor}`],
          ["Delivered", number(hook.delivered)],
          ["Last attempt", hook.triedAt && time(hook.triedAt)],
          ["Response", hook.triedAt && (hook.httpStatus ? `HTTP ${hook.httpStatus}` : "nothing")],
          ["Consecutive failures", hook.failures || null],
          ["Failing since", hook.failingSince && time(hook.failingSince)],
          ["Next attempt", hook.retryAt && time(hook.retryAt)],
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
                  title: "Replay",
                  text: "Resume the delivery, or repeat events after an entry. Receivers recognise repeated events by their ids.",
                  submit: "Replay",
                  fields: [
                    {
                      name: "after",
                      label: "After entry",
                      type: "number",
                      hint: "0 repeats all events; empty resumes the delivery.",
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
            "Replay",
          ),
        ),
      ),
    ),
  );
}

export const state = (hook) =>
  tag(
    hook.status === "failed" ? "failed" : hook.failures ? "failing" : "active",
    hook.status === "failed" || hook.failures ? "bad" : "good",
  );
