// Selects the agent of the page: the agent that serves it, or an allowed one from ?agent=URL.

const root = new URL(document.querySelector("meta[name=keelbolt-root]").content, document.baseURI);
root.hash = root.search = "";
export const HOME = root.href.replace(/\/$/, "");

// Returns the base URL for the URL of an agent or of its card.
export const baseOf = (url) =>
  url
    .trim()
    .replace(/\/\.well-known\/agent(-card)?\.json$/, "")
    .replace(/\/+$/, "");

// Other agents from the server's configuration. The content security policy allows connections to their origins only.
export const OTHERS = JSON.parse(document.querySelector("meta[name=keelbolt-agents]").content).map(baseOf);

const asked = baseOf(new URLSearchParams(location.search).get("agent") ?? "");
export const FOREIGN = asked !== "" && asked !== HOME;
export const BASE = FOREIGN ? asked : HOME;

const originOf = (url) => (URL.canParse(url) ? new URL(url).origin : "");
const allowed = (url) => [HOME, ...OTHERS].map(originOf).includes(originOf(url)) && originOf(url) !== "";

// Returns the reason why the page can't show an agent, or "".
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

// URL for JSON-RPC: the base URL of a Keelbolt agent, or the URL in the card of another agent.
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
