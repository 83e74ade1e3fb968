// Talk to the agent, and see every byte of it.

import { h, replace } from "../dom.js";
import { agentCard } from "../agent_card.js";
import { schemaOf } from "../answers.js";
import { ENDED, PAUSED, stateName } from "../format.js";
import { rpc } from "../api.js";
import { copyAs, empty } from "../pieces.js";
import { composer } from "./composer.js";
import { exchange } from "./exchange.js";

export const tryView = { id: "try", title: "Try", open };

// What was said in this tab stays while one looks at other views; streams go on meanwhile.
const talk = {
  compose: null,
  list: h("div", { class: "talk", role: "log", "aria-label": "Conversation" }),
  running: new AbortController(),
  going: null,
};

async function open({ main, query, signal }) {
  const card = await agentCard();
  if (signal.aborted) return;
  const start = { task: talk.going?.task, context: talk.going?.context, ...query };
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
      empty("Nothing said yet", "Choose an example, or write what you like. Answers grow here while the agent works."),
    );

  function clear() {
    talk.running.abort();
    talk.running = new AbortController();
    talk.going = null;
    talk.list.replaceChildren(empty("Nothing said yet"));
    compose.goOn("", "");
  }
}

function say(params, stream) {
  talk.list.querySelector(":scope > .empty")?.remove();
  const one = exchange(params, {
    stream,
    onTask(task, state, status) {
      const over = ENDED.includes(stateName(state));
      talk.going = { task: over ? "" : task.id, context: task.contextId };
      talk.compose.goOn(talk.going.task, talk.going.context);
      if (PAUSED.includes(stateName(state)) && schemaOf(status?.message)) talk.compose.ask(schemaOf(status.message));
    },
    onAnswer(task, parts) {
      say(
        {
          message: {
            messageId: crypto.randomUUID(),
            role: "ROLE_USER",
            parts,
            taskId: task.id,
            contextId: task.contextId,
          },
        },
        stream,
      );
    },
  });
  talk.list.append(one.element);
  one.element.scrollIntoView({ block: "nearest" });
  one.run(talk.running.signal);
}
