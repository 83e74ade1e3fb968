// The agent card, its checks, the identity of the user, and other agents.

import { h, replace } from "../dom.js";
import { HOME, BASE, OTHERS, baseOf, pageOf, refusal } from "../agents.js";
import { rpc, send } from "../api.js";
import { agentCard, badgeOf, cardCall, examplesOf } from "../agent_card.js";
import { checkCard } from "../checks.js";
import { plural } from "../format.js";
import { raw, tree } from "../json.js";
import { card as box, copyAs, facts, field, problem, tabs, tag } from "../pieces.js";
import { link } from "../router.js";
import { signInForm } from "../sign_in.js";

export const agentView = { id: "agent", title: "Agent", open };

async function open({ main, query, signal, me }) {
  const card = await agentCard();
  if (signal.aborted) return;
  const pages = tabs(
    "The card",
    [
      { id: "overview", title: "Overview" },
      {
        id: "checks",
        title: "Checks",
        count: checkCard(card).filter(({ level }) => level === "bad" || level === "warn").length || undefined,
      },
      { id: "raw", title: "Raw" },
    ],
    query.tab,
    (id, panel) => {
      if (id === "checks") panel.append(checks(card));
      else if (id === "raw")
        panel.append(h("div", { class: "stack" }, copyAs(cardCall), raw(card, { name: "agent-card.json" })));
      else panel.append(overview(card, me));
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "hero" },
      h("div", { class: "row" }, h("h1", {}, card.name), tag(`version ${card.version}`)),
      h("p", { class: "lead" }, card.description),
      h(
        "div",
        { class: "row" },
        h("a", { class: "button primary", href: link(["try"]) }, "Try it"),
        !me?.plain && h("a", { class: "button", href: link(["tasks"]) }, "Show tasks"),
      ),
    ),
    pages.element,
  );
  pages.start();
}

function overview(card, me) {
  const capabilities = card.capabilities ?? {};
  const can = [
    ["streaming", "Streams"],
    ["pushNotifications", "Webhooks"],
    ["stateTransitionHistory", "State history"],
    ["extendedAgentCard", "Extended card"],
  ];
  return h(
    "div",
    { class: "columns" },
    h(
      "div",
      { class: "stack" },
      h("h2", {}, plural(card.skills?.length ?? 0, "skill")),
      (card.skills ?? []).map((each) => skill(each, card)),
      !card.skills?.length && h("p", { class: "dim" }, "The card lists no skills; you can still send messages."),
    ),
    h(
      "div",
      { class: "stack" },
      signing(card, me),
      others(),
      box(
        "Capabilities",
        h(
          "div",
          { class: "row tight" },
          can.map(([name, label]) =>
            tag(`${capabilities[name] ? "✓" : "–"} ${label}`, capabilities[name] ? "good" : "still"),
          ),
        ),
        facts([
          ["Input", (card.defaultInputModes ?? []).join(", ")],
          ["Output", (card.defaultOutputModes ?? []).join(", ")],
        ]),
      ),
      box(
        "Interfaces",
        h(
          "ul",
          { class: "plain" },
          (card.supportedInterfaces ?? []).map((each) =>
            h(
              "li",
              {},
              tag(`${each.protocolBinding} ${each.protocolVersion}`, "busy"),
              " ",
              h("code", { class: "break" }, each.url),
            ),
          ),
        ),
      ),
      capabilities.extensions?.length > 0 &&
        box(
          "Extensions",
          h(
            "ul",
            { class: "plain" },
            capabilities.extensions.map((each) =>
              h(
                "li",
                {},
                h("code", { class: "break" }, each.uri),
                each.required && tag("required", "ask"),
                each.description && h("p", { class: "dim" }, each.description),
              ),
            ),
          ),
        ),
      (card.provider || card.documentationUrl) &&
        box(
          "Provider",
          facts([
            ["Name", card.provider?.organization],
            ["Address", card.provider?.url],
            ["Documentation", card.documentationUrl],
          ]),
        ),
    ),
  );
}

function skill(each, card) {
  return h(
    "article",
    { class: "card skill" },
    h("div", { class: "row" }, h("h3", {}, each.name), h("code", { class: "dim" }, each.id)),
    (each.description ?? "").split("\n\n").map((text) => h("p", {}, text)),
    h(
      "div",
      { class: "row tight" },
      (each.tags ?? []).map(badgeOf).map(({ label, tone }) => tag(label, tone)),
    ),
    each.examples?.length > 0 &&
      h(
        "div",
        { class: "examples" },
        examplesOf(card, each).map(({ text, label }) =>
          h(
            "a",
            {
              class: "example",
              href: link(["try"], { skill: each.id, text }),
              title: label === text ? "Try this" : `Try this: ${text}`,
            },
            label,
          ),
        ),
      ),
    (each.inputModes || each.outputModes) &&
      facts([
        ["Input", (each.inputModes ?? []).join(", ")],
        ["Output", (each.outputModes ?? []).join(", ")],
      ]),
    h("div", { class: "row" }, h("a", { href: link(["try"], { skill: each.id }) }, `Try ${each.name}`)),
  );
}

// ------------------------------------------------------------------------------------------------ other agents

function others() {
  const wrong = h("p", { class: "bad-ink", role: "alert" });
  const address = h("input", { type: "url", required: true, placeholder: "https://…", spellcheck: "false" });
  return box(
    "Other agents",
    OTHERS.length > 0 &&
      h(
        "ul",
        { class: "plain" },
        [HOME, ...OTHERS].filter((url) => url !== BASE).map((url) => h("li", {}, h("a", { href: pageOf(url) }, url))),
      ),
    h(
      "form",
      {
        class: "stack",
        onsubmit: (event) => {
          event.preventDefault();
          wrong.textContent = refusal(baseOf(address.value));
          if (!wrong.textContent) location.href = pageOf(address.value);
        },
      },
      field("URL of an agent or of its card", address),
      wrong,
      h("div", { class: "row" }, h("button", {}, "Show")),
    ),
  );
}

// ------------------------------------------------------------------------------------------------------ checks

const WORDS = { good: "✓ Good", bad: "✗ Fix this", warn: "✗ Improve", note: "○ Optional" };
const ORDER = { bad: 0, warn: 1, note: 2, good: 3 };
const TONES = { good: "good", bad: "bad", warn: "ask", note: "still" };

function checks(card) {
  const found = checkCard(card).sort((one, other) => ORDER[one.level] - ORDER[other.level]);
  const bad = found.filter(({ level }) => level === "bad").length;
  return h(
    "div",
    { class: "stack" },
    h(
      "p",
      { class: "lead" },
      bad
        ? `${plural(bad, "thing")} in this card to fix for clients.`
        : "All clients that follow the specification can use this card.",
    ),
    h(
      "ul",
      { class: "checks" },
      found.map(({ level, title, hint }) =>
        h(
          "li",
          {},
          tag(WORDS[level], TONES[level]),
          h("div", {}, h("strong", {}, title), hint && h("p", { class: "dim" }, hint)),
        ),
      ),
    ),
  );
}

// -------------------------------------------------------------------------------------------------- signing in

function signing(card, me) {
  const schemes = Object.entries(card.securitySchemes ?? {});
  if (!schemes.length && !me?.authentication) {
    return box(
      "Your identity",
      h(
        "p",
        {},
        me?.operator
          ? "You are on this agent's machine: you are its operator and see all tasks."
          : "This agent has no authentication: all callers share one identity.",
      ),
    );
  }
  const result = h("div", {});
  const form = h(
    "div",
    { class: "stack" },
    signInForm(
      card,
      card.capabilities?.extendedAgentCard &&
        h("button", { type: "button", onclick: extended }, "Show the extended card"),
    ),
    result,
  );
  async function extended() {
    try {
      replace(result, tree(await send(rpc("GetExtendedAgentCard", {})), { open: 1 }));
    } catch (error) {
      replace(result, problem(error));
    }
  }
  const state =
    me?.failed && !me.plain
      ? me.failed.message
      : me?.owner
        ? `You are ${me.owner}${me.tenant ? ` of ${me.tenant}` : ""}${me.operator ? ", an operator" : ""}.`
        : "You are not signed in.";
  return box(
    "Your identity",
    h("p", {}, state),
    h("p", { class: "dim" }, `Accepted: ${schemes.map(([name]) => name).join(", ")}`),
    form,
  );
}
