// Routes in the URL fragment: #/tasks/<id>?tab=waterfall. Everything that users can share is in the URL.

export function here() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts: parts.length ? parts : ["agent"], query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(parts, query = {}) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") found.set(name, value);
  }
  const text = found.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// Changes the query and stays in the view.
export function setQuery(changes) {
  const { parts, query } = here();
  history.replaceState(history.state, "", link(parts, { ...query, ...changes }));
}

export const go = (parts, query) => {
  location.hash = link(parts, query);
};
