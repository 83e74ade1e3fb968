// Checks of the agent card against the specification; each problem has a remedy.

const ID = /^[^\s]+$/;
const MEDIA = /^[\w.+*-]+\/[\w.+*-]+(;.*)?$/;
const LOCAL = /^(localhost|127\.|\[?::1\]?$)/;
const BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"];

const text = (value) => typeof value === "string" && value.trim() !== "";

function url(value) {
  try {
    return new URL(value);
  } catch {
    return null;
  }
}

function secure(value) {
  const parsed = url(value);
  return !parsed || parsed.protocol === "https:" || LOCAL.test(parsed.hostname);
}

export function checkCard(card) {
  const found = [];
  const check = (good, title, hint, level = "bad") =>
    found.push({ level: good ? "good" : level, title, hint: good ? "" : hint });

  for (const name of ["name", "description", "version"]) {
    check(text(card[name]), `The card has a ${name}`, `Add a text "${name}"; clients display it and select agents by it.`);
  }
  const interfaces = card.supportedInterfaces ?? [];
  check(
    Array.isArray(interfaces) && interfaces.length > 0,
    "The card lists interfaces",
    'Add "supportedInterfaces": one entry for each address, the preferred one first.',
  );
  check(
    interfaces.every((each) => text(each.url) && text(each.protocolBinding) && text(each.protocolVersion)),
    "Every interface has an address, a binding and a version",
    'Each entry of "supportedInterfaces" needs url, protocolBinding and protocolVersion.',
  );
  check(
    interfaces.every((each) => BINDINGS.includes(each.protocolBinding) || url(each.protocolBinding)),
    "All bindings are known",
    `Use ${BINDINGS.join(", ")}, or the URI of a custom binding.`,
    "warn",
  );
  const web = interfaces.filter((each) => each.protocolBinding !== "GRPC");
  check(
    web.every((each) => url(each.url)),
    "All addresses are absolute",
    "Add scheme and host; behind a proxy, set the agent's url.",
  );
  check(
    web.every((each) => secure(each.url)),
    "Remote addresses use https",
    "Serve the agent behind TLS, and set its url to the https address.",
  );
  check(
    card.capabilities && typeof card.capabilities === "object",
    "The card lists capabilities",
    'Add "capabilities", if only {}.',
  );
  check(
    card.capabilities?.streaming === true,
    "Streaming is supported",
    'Say "streaming": true, so that clients see long answers grow.',
    "warn",
  );
  for (const name of ["defaultInputModes", "defaultOutputModes"]) {
    const modes = card[name];
    check(
      Array.isArray(modes) && modes.length > 0 && modes.every((mode) => MEDIA.test(mode)),
      `${name} are media types`,
      `Add "${name}", for example ["text/plain", "application/json"].`,
    );
  }
  skills(card.skills, check);
  security(card, check);
  for (const name of ["documentationUrl", "iconUrl"]) {
    if (card[name] !== undefined)
      check(url(card[name]), `${name} is an address`, `Make "${name}" an absolute URL.`);
  }
  if (card.provider)
    check(
      text(card.provider.organization) && url(card.provider.url),
      "The provider has a name and an address",
      'Give both "organization" and "url".',
    );
  const extensions = card.capabilities?.extensions ?? [];
  check(
    extensions.every((each) => url(each.uri)),
    "Extensions are named by URIs",
    'Each needs "uri", an absolute URI.',
  );
  check(Boolean(card.signatures?.length), "The card is signed", "Sign the card, so that clients can verify its author.", "note");
  if (card.url !== undefined || card.protocolVersion !== undefined) {
    check(
      url(card.url) && text(card.protocolVersion) && text(card.preferredTransport),
      "Clients of 0.3 can use the card",
      'Give "url", "protocolVersion" and "preferredTransport" together.',
      "warn",
    );
  } else {
    check(false, "Clients of 0.3 can use the card", "Only clients of 1.0 can use this card.", "note");
  }
  return found;
}

function skills(list, check) {
  check(
    Array.isArray(list) && list.length > 0,
    "The card lists skills",
    'Add "skills": what the agent is good at, so that others can choose it.',
    "warn",
  );
  const all = Array.isArray(list) ? list : [];
  check(
    all.every((skill) => text(skill.id) && ID.test(skill.id) && text(skill.name) && text(skill.description)),
    "Every skill has an id, a name and a description",
    "Add them; other agents select skills by the description.",
  );
  check(
    new Set(all.map(({ id }) => id)).size === all.length,
    "Skill ids are unique",
    "Two skills have the same id; change one.",
  );
  check(
    all.every((skill) => Array.isArray(skill.tags) && skill.tags.length > 0),
    "Every skill has tags",
    "A2A 1.0 requires tags; one or two are enough.",
    "warn",
  );
  check(
    all.length === 0 || all.some((skill) => skill.examples?.length),
    "Skills have examples",
    "Add one or two example messages for users.",
    "note",
  );
  const modes = all.flatMap((skill) => [...(skill.inputModes ?? []), ...(skill.outputModes ?? [])]);
  check(
    modes.every((mode) => MEDIA.test(mode)),
    "The modes of skills are media types",
    "For example application/json.",
  );
}

function security(card, check) {
  const schemes = card.securitySchemes ?? {};
  const wanted = [
    ...(card.securityRequirements ?? []).flatMap((each) => Object.keys(each.schemes ?? {})),
    ...(card.security ?? []).flatMap((each) => Object.keys(each)),
  ];
  check(
    wanted.every((name) => name in schemes),
    "Required security schemes are defined",
    'Every name in "securityRequirements" needs an entry in "securitySchemes".',
  );
  check(
    Object.keys(schemes).length > 0,
    "Callers are authenticated",
    "Without authentication, every client that reaches the agent may use it.",
    "note",
  );
}
