// Which agent the page shows: the one that serves it, or another one that its operator allows (?agent=URL).

const root = new URL(document.querySelector("meta[name=keelbolt-root]").content, document.baseURI);
root.hash = root.search = "";
export const HOME = root.href.replace(/\/$/, "");

// A base, from the address of an agent or of its card.
export const baseOf = (url) =>
  url
    .trim()
    .replace(/\/\.well-known\/agent(-card)?\.json$/, "")
    .replace(/\/+$/, "");

// The others that the server names; the policy of the page lets it connect to their origins alone.
export const OTHERS = JSON.parse(document.querySelector("meta[name=keelbolt-agents]").content).map(baseOf);

const asked = baseOf(new URLSearchParams(location.search).get("agent") ?? "");
export const FOREIGN = asked !== "" && asked !== HOME;
export const BASE = FOREIGN ? asked : HOME;

const originOf = (url) => (URL.canParse(url) ? new URL(url).origin : "");
const allowed = (url) => [HOME, ...OTHERS].map(originOf).includes(originOf(url)) && originOf(url) !== "";

// Why an agent can't be shown; empty: it can.
export function refusal(url = BASE) {
  if (!/^https?:\/\//.test(url) || !URL.canParse(url)) return `${url} is not the URL of an agent.`;
  if (allowed(url)) return "";
  return `This page may not connect to ${originOf(url)}. The operator can allow it with KEELBOLT_EXPLORER_AGENTS=${url}`;
}

export function pageOf(url) {
  const page = new URL(location.pathname, location.href);
  if (baseOf(url) !== HOME) page.searchParams.set("agent", baseOf(url));
  page.hash = "#/agent";
  return page.href;
}

// Where JSON-RPC is sent: to the base of a Keelbolt agent, or to where the card of another one says.
let rpcUrl = `${BASE}/`;
let reason = "";

export function endpoint() {
  if (reason) throw new Error(reason);
  return rpcUrl;
}

export function useCard(card) {
  if (!FOREIGN) return;
  const found = (card.supportedInterfaces ?? []).find(
    (each) =>
      each?.protocolBinding === "JSONRPC" && /^1\./.test(each.protocolVersion ?? "") && typeof each.url === "string",
  );
  if (found) rpcUrl = found.url;
  reason = found ? refusal(found.url) : "The card has no JSON-RPC interface of A2A 1.0, which this page requires.";
}
