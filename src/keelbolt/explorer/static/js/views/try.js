// A conversation with the agent, with all requests and responses.

import { h, replace } from "../dom.js";
import { agentCard } from "../agent_card.js";
import { rpc } from "../api.js";
import { copyAs, empty } from "../pieces.js";
import { link } from "../router.js";
import { titleOf } from "../titles.js";
import { composer } from "./composer.js";
import { exchange } from "./exchange.js";

export const tryView = { id: "try", title: "Try", open };

// State of this tab. It survives a change of the view; streams continue.
const talk = {
  compose: null,
  plain: false, // the agent has no operations API, so its tasks have no page here
  list: h("div", { class: "talk", role: "log", "aria-label": "Conversation" }),
  running: new AbortController(),
  context: "", // of the last task; messages from here belong to one context
  titles: new Map(), // task id → title from its first message
};

async function open({ main, query, signal, me }) {
  talk.plain = Boolean(me?.plain);
  const card = await agentCard();
  if (signal.aborted) return;
  const start = { context: talk.context, ...query };
  const compose = composer(card, { start, onSend: say });

  talk.compose = compose;

  replace(
    main,
    h(
      "div",
      { class: "view-head" },
      h("h1", {}, "Try"),
      h(
        "div",
        { class: "row" },
        copyAs(() =>
          rpc(compose.streams ? "SendStreamingMessage" : "SendMessage", compose.params() ?? {}, {
            stream: compose.streams,
          }),
        ),
        h("button", { type: "button", class: "quiet small", onclick: clear }, "Clear"),
      ),
    ),
    h("div", { class: "columns try" }, compose.element, talk.list),
  );
  if (!talk.list.childElementCount)
    talk.list.append(
      empty("No messages yet", "Select an example, or write a message. Answers appear here while the agent works."),
    );

  function clear() {
    talk.running.abort();
    talk.running = new AbortController();
    talk.context = "";
    talk.list.replaceChildren(empty("No messages yet"));
    compose.inContext("");
  }
}

// Each message of the composer starts a new task unless the user names one under More. A question of a task is answered
// in the question itself, so that no message reaches a task by accident.
function say(params, stream) {
  talk.list.querySelector(":scope > .empty")?.remove();
  const one = exchange(params, {
    stream,
    taskLink: (id) => {
      const title = talk.titles.get(id) ?? "Task";
      return talk.plain ? h("span", { title: id }, title) : h("a", { href: link(["tasks", id]), title: id }, title);
    },
    onTask(task) {
      if (!talk.titles.has(task.id)) talk.titles.set(task.id, titleOf(params.message, params.metadata?.skillId));
      talk.context = task.contextId;
      talk.compose.inContext(talk.context);
    },
    onAnswer(task, parts) {
      const ids = { messageId: crypto.randomUUID(), taskId: task.id, contextId: task.contextId };
      say({ message: { ...ids, role: "ROLE_USER", parts } }, stream);
    },
  });
  talk.list.append(one.element);
  one.element.scrollIntoView({ block: "nearest" });
  one.run(talk.running.signal);
}
