// A call as a command to copy: curl, Python or JSON. Commands never contain a token.

import { address, headers } from "./api.js";

const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

export function curl(call) {
  const lines = [
    `curl ${call.stream ? "-N " : ""}${call.method === "POST" || call.method === "GET" ? "" : `-X ${call.method} `}${quote(address(call))}`,
  ];
  for (const [name, value] of Object.entries(headers(call, { secret: false }))) {
    // The shell variable $TOKEN holds the token.
    lines.push(value.includes("$TOKEN") ? `  -H "${name}: ${value}"` : `  -H ${quote(`${name}: ${value}`)}`);
  }
  if (call.body !== undefined) lines.push(`  -d ${quote(JSON.stringify(call.body))}`);
  return lines.join(" \\\n");
}

const python = (value, indent = 0) => {
  const pad = "    ".repeat(indent + 1);
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string" || typeof value === "number") return JSON.stringify(value);
  const open = Array.isArray(value) ? "[" : "{";
  const items = Array.isArray(value)
    ? value.map((each) => python(each, indent + 1))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each, indent + 1)}`);
  const close = open === "[" ? "]" : "}";
  if (!items.length) return open + close;
  return `${open}\n${items.map((item) => `${pad}${item},\n`).join("")}${"    ".repeat(indent)}${close}`;
};

export function pythonCode(call) {
  const lines = ["import json", "import os", "from urllib.request import Request, urlopen", ""];
  const named = Object.entries(headers(call, { secret: false })).map(([name, value]) => {
    const known = value.replace("$TOKEN", "");
    return `    ${JSON.stringify(name)}: ${value.includes("$TOKEN") ? `${JSON.stringify(known)} + os.environ["TOKEN"]` : JSON.stringify(value)},`;
  });
  lines.push("headers = {", ...named, "}");
  if (call.body !== undefined) lines.push(`body = ${python(call.body)}`);
  const data = call.body === undefined ? "" : ", data=json.dumps(body).encode()";
  lines.push(
    `request = Request(${JSON.stringify(address(call))}, method=${JSON.stringify(call.method)}, headers=headers${data})`,
  );
  lines.push("with urlopen(request) as answer:");
  if (call.stream) lines.push("    for line in answer:", '        print(line.decode(), end="")');
  else lines.push("    print(json.dumps(json.load(answer), indent=2))");
  return lines.filter((line) => call.body !== undefined || !call.stream || line !== "import json").join("\n");
}

export const jsonText = (call) => JSON.stringify(call.body ?? { method: call.method, url: address(call) }, null, 2);
