// Actions on a task. Each is a call of the operations API; the log records its reason.

import { h } from "../dom.js";
import { ops } from "../api.js";
import { ask } from "../dialog.js";
import { ENDED } from "../format.js";
import { go } from "../router.js";

const KINDS = ["pause", "resume", "inject", "redirect"]; // omitted if the card declares a button of this kind
const REASON = { name: "reason", label: "Reason", hint: "Stored in the log with your name.", type: "text" };

// `own` are the buttons from the agent's card; `choose` opens a tab of the task.
export function actions({ id, state, ownerQuery, head, dead, again, own = [], choose }) {
  const call = (method, path, body) =>
    ops(method, `/tasks/${encodeURIComponent(id)}${path}`, { query: ownerQuery, body });
  const ended = ENDED.includes(state);
  const running = state === "working" || state === "submitted";
  const steer = (kind, title, text, fields = [], payload = () => undefined) =>
    button(title.split(" ")[0], () =>
      ask({
        title,
        text,
        submit: title.split(" ")[0],
        fields: [...fields, REASON],
        done: again,
        call: (values) => call("POST", "/steer", clean({ kind, reason: values.reason, payload: payload(values) })),
      }),
    );
  const found = [];
  if (!ended) {
    found.push(
      button(
        "Cancel",
        () =>
          ask({
            title: "Cancel this task",
            text: "The worker is asked to stop. Results so far are kept.",
            submit: "Cancel the task",
            danger: true,
            fields: [REASON],
            done: again,
            call: ({ reason }) => call("POST", "/cancel", clean({ reason })),
          }),
        "danger",
      ),
    );
  }
  if (running) {
    found.push(
      ...own.map((each) =>
        button(
          each.label,
          () =>
            ask({
              title: each.label,
              text: each.text,
              submit: each.label,
              danger: Boolean(each.danger),
              schema: each.schema && typeof each.schema === "object" ? each.schema : undefined,
              fields: [REASON],
              call: ({ reason, form }) =>
                call(
                  "POST",
                  "/steer",
                  clean({ kind: each.kind, reason, payload: form ? { ...each.payload, ...form } : each.payload }),
                ),
              done: () => {
                if (each.tab) choose(each.tab);
                again();
              },
            }),
          each.danger ? "danger" : "",
        ),
      ),
      ...[
        steer("pause", "Pause the task", "Sent to the worker, which decides how to handle it."),
        steer("resume", "Resume the task", "Sent to the worker, which decides how to handle it."),
        steer(
          "inject",
          "Inject a message",
          "Sent to the worker while it runs.",
          [{ name: "text", label: "Message", type: "area", required: true }],
          ({ text }) => ({ text }),
        ),
        steer(
          "redirect",
          "Redirect the task",
          "Sent to the worker while it runs; the worker decides how to handle it.",
          [
            { name: "text", label: "New instructions", type: "area" },
            { name: "payload", label: "Additional payload fields, as JSON", type: "json", extra: true },
          ],
          ({ text, payload }) => clean({ text, ...payload }),
        ),
      ].filter((_, index) => !own.some(({ kind, schema }) => schema && kind === KINDS[index])),
      steer(
        "prioritise",
        "Prioritise the task",
        "Among waiting tasks, the larger number runs first.",
        [{ name: "priority", label: "Priority", type: "number", value: "1" }],
        ({ priority }) => ({ priority }),
      ),
    );
  }
  found.push(button("Fork", () => fork({ call, head: head() })));
  if (state === "failed" || dead) {
    found.push(
      button("Requeue", () =>
        ask({
          title: "Retry this task",
          text: "Its last message creates a new task; this one does not change.",
          submit: "Requeue",
          call: () => call("POST", "/requeue", {}),
          done: ({ taskId }) => go(["tasks", taskId], ownerQuery),
        }),
      ),
    );
  }
  found.push(
    button(
      "Erase",
      () =>
        ask({
          title: "Erase this task",
          text: "The task, its log and its files are erased permanently. This cannot be undone.",
          submit: "Erase permanently",
          danger: true,
          call: () => call("DELETE", ""),
          done: () => go(["tasks"], ownerQuery),
        }),
      "quiet",
    ),
  );
  return h("div", { class: "row tight", role: "group", "aria-label": "Actions" }, found);
}

export function fork({ call, head, seq = head }) {
  ask({
    title: "Fork as a new task",
    text: "A new task gets the user's last message up to this entry, with the earlier messages and results. This task does not change.",
    fields: [{ name: "seq", label: `Up to entry (1 to ${head})`, type: "number", value: String(seq), required: true }],
    submit: "Fork",
    call: (values) => call("POST", "/fork", { seq: values.seq }),
    done: ({ taskId }) => go(["tasks", taskId]),
  });
}

const clean = (body) =>
  Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined && value !== ""));

const button = (label, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, label);
