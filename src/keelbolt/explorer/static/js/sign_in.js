// Sign-in with a token or key: a form from the card's security schemes, and a page for agents that require it.

import { h, replace } from "./dom.js";
import { agentCard } from "./agent_card.js";
import { BASE, credentials, signIn } from "./api.js";
import { field } from "./pieces.js";

// Returns [{label, header, prefix}] for the security schemes. OAuth 2 and OpenID Connect use bearer tokens.
export function waysIn(card) {
  const ways = Object.values(card.securitySchemes ?? {}).map((scheme) => {
    const key = scheme.apiKeySecurityScheme ?? (scheme.type === "apiKey" ? { ...scheme, location: scheme.in } : null);
    if (key)
      return (key.location ?? "header") === "header" ? { label: `Key, sent as ${key.name}`, header: key.name } : null;
    const http = scheme.httpAuthSecurityScheme ?? (scheme.type === "http" ? scheme : null);
    if (http && !/^bearer$/i.test(http.scheme ?? ""))
      return {
        label: `Credentials, sent as Authorization: ${http.scheme}`,
        header: "Authorization",
        prefix: http.scheme,
      };
    return { label: "Bearer token", header: "Authorization", prefix: "Bearer" };
  });
  const found = ways.filter((way, index) => way && ways.findIndex((each) => each?.label === way.label) === index);
  return found.length ? found : [{ label: "Bearer token", header: "Authorization", prefix: "Bearer" }];
}

export function signInForm(card, ...more) {
  const ways = waysIn(card);
  const known = credentials();
  const token = h("input", {
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    placeholder: known ? "•••••••• (stored in this tab)" : "Paste it here",
  });
  const place = h("div", {});
  const way = h(
    "select",
    { onchange: draw },
    ways.map(({ label }, index) => h("option", { value: String(index) }, label)),
  );
  const chosen = () => ways[Number(way.value || 0)];
  function draw() {
    replace(
      place,
      field(chosen().label, token, `Stored in this tab until you close it, and sent only to ${BASE}.`),
    );
  }
  draw();
  return h(
    "form",
    {
      class: "stack",
      onsubmit: (event) => {
        event.preventDefault();
        const { header, prefix } = chosen();
        const value = token.value.trim();
        if (value) signIn(header, prefix && !/^\w+ /.test(value) ? `${prefix} ${value}` : value);
      },
    },
    ways.length > 1 && field("By", way),
    place,
    h(
      "div",
      { class: "row" },
      h("button", { class: "primary" }, "Sign in"),
      known && h("button", { type: "button", onclick: () => signIn("", "") }, "Sign out"),
      more,
    ),
  );
}

// Replaces a view that requires authentication; the view opens after the sign-in.
export async function signInPage(main, error, signal) {
  const card = await agentCard().catch(() => ({ name: "this agent" }));
  if (signal.aborted) return;
  replace(
    main,
    h(
      "section",
      { class: "card sign-in" },
      h("h1", {}, `Sign in to ${card.name}`),
      credentials()
        ? h("p", { class: "notice bad", role: "alert" }, h("span", {}, `The agent refused the credentials: ${error.message}`))
        : h("p", { class: "dim" }, "This agent shows tasks only to authenticated callers."),
      signInForm(card),
    ),
  );
}
