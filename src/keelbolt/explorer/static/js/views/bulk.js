// An action on several tasks: a bar while tasks are selected, a confirmation, and the progress.

import { announce, h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { ENDED, plural, stateName } from "../format.js";
import { field } from "../pieces.js";

const AT_ONCE = 4; // parallel calls; more would slow down other clients of the agent
const SHOWN = 5; // failures listed by name

const ACTIONS = [
  {
    label: "Cancel",
    fits: (task) => !ENDED.includes(stateName(task.status.state)),
    text: "The workers are asked to stop. Results so far are kept.",
    reason: true,
    call: (path, query, reason) => ops("POST", `${path}/cancel`, { query, body: reason ? { reason } : {} }),
  },
  {
    label: "Retry",
    fits: (task) => stateName(task.status.state) === "failed",
    text: "The last message of each task creates a new task; the failed tasks do not change.",
    call: (path, query) => ops("POST", `${path}/requeue`, { query, body: {} }),
  },
  {
    label: "Erase",
    fits: () => true,
    text: "The tasks, their logs and their files are erased permanently.",
    call: (path, query) => ops("DELETE", path, { query }),
  },
];

// `chosen` maps ids to tasks; `ownerQuery(task)` returns the owner's query; `done` is called after the calls.
export function bulkBar({ chosen, ownerQuery, clear, done, all }) {
  const bar = h("div", { class: "bulk row", role: "group", "aria-label": "Selected tasks" });
  function draw() {
    bar.hidden = !chosen.size;
    if (!chosen.size) return;
    const more = all();
    replace(
      bar,
      h("strong", {}, `${plural(chosen.size, "task")} selected`),
      ACTIONS.map((action) => {
        const tasks = [...chosen.values()].filter(action.fits);
        return h(
          "button",
          {
            type: "button",
            class: action.label === "Retry" ? "" : "danger",
            disabled: !tasks.length,
            onclick: () => confirm(action, tasks),
          },
          `${action.label} ${tasks.length}`,
        );
      }),
      more && h("button", { type: "button", class: "quiet", onclick: more.choose }, more.label),
      h("button", { type: "button", class: "quiet", onclick: clear }, "Clear selection"),
    );
  }

  function confirm(action, tasks) {
    const title = `${action.label} ${plural(tasks.length, "task")}`;
    const reason = h("input", { autocomplete: "off" });
    const meter = h("progress", { max: String(tasks.length), value: 0, "aria-label": title, hidden: true });
    const result = h("div", { role: "status" });
    const stop = new AbortController();
    const close = h("button", { type: "button", onclick: () => dialog.close() }, "Not now");
    const go = h("button", { class: action.label === "Retry" ? "primary" : "danger" }, title);
    const dialog = h(
      "dialog",
      {
        "aria-labelledby": "bulk-title",
        onclose: () => {
          stop.abort();
          dialog.remove();
        },
      },
      h(
        "form",
        {
          class: "stack",
          onsubmit: (event) => {
            event.preventDefault();
            run();
          },
        },
        h("h2", { id: "bulk-title" }, title),
        h("p", { class: "dim" }, action.text),
        action.reason && field("Reason", reason, "Stored in the logs with your name."),
        meter,
        result,
        h("div", { class: "row" }, go, close),
      ),
    );
    async function run() {
      go.disabled = true;
      close.textContent = "Stop";
      meter.hidden = false;
      const failed = [];
      let ended = 0;
      const waiting = [...tasks];
      const one = async () => {
        for (let task = waiting.shift(); task && !stop.signal.aborted; task = waiting.shift()) {
          const path = `/tasks/${encodeURIComponent(task.id)}`;
          try {
            await send(action.call(path, ownerQuery(task), reason.value.trim()), { quiet: tasks.length > 20 });
            chosen.delete(task.id);
          } catch (error) {
            failed.push(`${task.said || task.id}: ${error.message}`);
          }
          ended += 1;
          meter.value = ended;
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, one));
      const good = ended - failed.length;
      announce(`${title}: ${good} done, ${failed.length} failed`);
      done();
      if (!failed.length) {
        dialog.close();
        return;
      }
      go.remove();
      close.textContent = "Close";
      replace(
        result,
        h("p", {}, `${good} done, ${failed.length} failed:`),
        h(
          "ul",
          {},
          failed.slice(0, SHOWN).map((each) => h("li", {}, each)),
        ),
        failed.length > SHOWN && h("p", {}, `and ${failed.length - SHOWN} more`),
      );
    }
    document.body.append(dialog);
    dialog.showModal();
  }
  draw();
  return { element: bar, draw };
}
