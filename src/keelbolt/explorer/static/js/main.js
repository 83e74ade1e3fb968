// Entry point: builds the frame, loads the identity of the user, and opens the view that the URL names.

import { announce, h, replace } from "./dom.js";
import { callsDrawer } from "./calls.js";
import { BASE, FOREIGN, HOME, OTHERS, pageOf, refusal } from "./agents.js";
import { here, link } from "./router.js";
import { signInPage } from "./sign_in.js";
import { credentials, onSignIn, ops, send } from "./api.js";
import { quietConnection } from "./stream.js";
import { empty, problem } from "./pieces.js";
import { agentCard } from "./agent_card.js";
import { agentView } from "./views/agent.js";
import { tryView } from "./views/try.js";
import { tasksView } from "./views/tasks.js";
import { taskView } from "./views/task.js";
import { sessionsView } from "./views/sessions.js";
import { sessionView } from "./views/session.js";
import { traceView } from "./views/trace.js";
import { artifactView, memoryView, pauseView } from "./views/kept.js";
import { turnsView } from "./views/turns.js";
import { threadView } from "./views/thread.js";
import { dataView } from "./views/data.js";
import { dataRecordView } from "./views/data_record.js";
import { systemView } from "./views/system.js";

// A view has an id for the URL, a title, and `open({main, parts, query, signal, me})`.
// `operator` views show data of the whole service; only operators of all tenants see them.
const VIEWS = [agentView, tryView, tasksView, sessionsView, turnsView, dataView, systemView];
const DETAIL = {
  tasks: taskView,
  sessions: sessionView,
  turns: threadView,
  data: dataRecordView,
  traces: traceView,
  memory: memoryView,
  pauses: pauseView,
  artifacts: artifactView,
};
const PLAIN = [agentView, tryView]; // views for every A2A agent; the others need Keelbolt's operations API
const offered = () => (me?.plain ? PLAIN : VIEWS.filter(({ operator }) => !operator || me?.allTenants));

let leaving = new AbortController();
let me = null;
let shown = "";

async function whoami() {
  try {
    me = await send(ops("GET", "/whoami"));
  } catch (error) {
    const plain = FOREIGN && ![401, 403].includes(error.status);
    me = { owner: "", operator: false, authentication: true, failed: error, plain };
  }
  const who = document.getElementById("who");
  const name = me.plain ? "" : me.owner || (me.authentication ? (credentials() ? "signed in" : "not signed in") : "");
  replace(
    who,
    name &&
      h(
        "a",
        { href: "#/agent", class: "who", title: "Your identity at this agent" },
        me.tenant ? `${name} · ${me.tenant}` : name,
        me.operator && " (operator)",
      ),
  );
}

function nav(current) {
  replace(
    document.getElementById("nav"),
    offered().map(({ id, title }) =>
      h(
        "a",
        {
          href: link([id]),
          "aria-current": id === current ? "page" : null,
        },
        title,
      ),
    ),
  );
}

async function show() {
  const { parts, query } = here();
  leaving.abort();
  leaving = new AbortController();
  quietConnection();
  const view =
    (parts.length > 1 && !me?.plain && DETAIL[parts[0]]) ||
    (me?.plain ? PLAIN : VIEWS).find(({ id }) => id === parts[0]);
  const main = document.getElementById("main");
  main.replaceChildren();
  nav(view?.id);
  if (!view) {
    replace(main, h("h1", {}, "Page not found"), empty(`No view has this address: ${location.hash}`));
    return;
  }
  document.title = `${view.title} · Keelbolt explorer`;
  const signal = leaving.signal;
  const place = parts.join("/");
  if (shown && shown !== place) {
    announce(view.title);
    scrollTo(0, 0);
  }
  shown = place;
  try {
    await view.open({ main, parts, query, signal, me });
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) {
      await signInPage(main, error, signal);
      return;
    }
    if (!main.querySelector("h1")) replace(main, h("div", { class: "view-head" }, h("h1", {}, view.title)));
    main.append(problem(error, show));
  }
}

function showKeys() {
  const keys = [
    ...offered().map(({ title }, index) => [String(index + 1), title]),
    ["/", "Search tasks"],
    ["j, k", "Next and previous task"],
    ["↑, ↓", "Next and previous log entry"],
    ["Ctrl + Enter", "Send"],
    ["?", "This help"],
  ];
  const dialog = h(
    "dialog",
    { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    h(
      "form",
      { method: "dialog", class: "stack" },
      h("h2", { id: "keys-title" }, "Keyboard shortcuts"),
      h(
        "dl",
        { class: "keys" },
        keys.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what))),
      ),
      h("div", { class: "row" }, h("button", {}, "Close")),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey)
    return;
  if (event.key === "?") return showKeys();
  const view = offered()[Number(event.key) - 1];
  if (view) location.hash = link([view.id]);
  return undefined;
});
onSignIn(async () => {
  await whoami();
  await show();
});

// Selector of the agents: the agent that serves the page, and those that its operator configured.
function agents() {
  if (!OTHERS.length && !FOREIGN) return;
  const known = [...new Set([HOME, ...OTHERS, BASE])];
  const label = (url) => url.replace(/^https?:\/\//, "");
  replace(
    document.getElementById("agents"),
    h(
      "select",
      { "aria-label": "Agent", onchange: (event) => (location.href = pageOf(event.target.value)) },
      known.map((url) => h("option", { value: url, selected: url === BASE }, label(url))),
    ),
  );
}

callsDrawer();
agents();
nav(here().parts[0]);
const refused = FOREIGN ? refusal() : "";
if (refused) {
  replace(
    document.getElementById("main"),
    h("h1", {}, "This agent can't be shown"),
    h("p", { class: "notice bad", role: "alert" }, h("span", {}, refused)),
    h("p", {}, h("a", { href: pageOf(HOME) }, "Show the agent that serves this page")),
  );
} else {
  addEventListener("hashchange", show);
  agentCard().then(
    (card) => {
      document.getElementById("agent-name").textContent = card.name;
    },
    () => {},
  );
  await whoami();
  await show();
}
