// What the specification asks of a card, checked one by one, each with what to do about it.

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
    check(text(card[name]), `It has a ${name}`, `Add "${name}", a text; clients show it to people and choose by it.`);
  }
  const interfaces = card.supportedInterfaces ?? [];
  check(
    Array.isArray(interfaces) && interfaces.length > 0,
    "It says where the agent is reached",
    'Add "supportedInterfaces": one entry for each address, the preferred one first.',
  );
  check(
    interfaces.every((each) => text(each.url) && text(each.protocolBinding) && text(each.protocolVersion)),
    "Every interface has an address, a binding and a version",
    'Each entry of "supportedInterfaces" needs url, protocolBinding and protocolVersion.',
  );
  check(
    interfaces.every((each) => BINDINGS.includes(each.protocolBinding) || url(each.protocolBinding)),
    "The bindings are known",
    `Use ${BINDINGS.join(", ")}, or the URI of a binding of your own.`,
    "warn",
  );
  const web = interfaces.filter((each) => each.protocolBinding !== "GRPC");
  check(
    web.every((each) => url(each.url)),
    "The addresses are absolute",
    "Write them with scheme and host; set the agent's url where a proxy stands before it.",
  );
  check(
    web.every((each) => secure(each.url)),
    "Outside of this machine the addresses are https",
    "Serve the agent behind TLS, and set its url to the https address.",
  );
  check(
    card.capabilities && typeof card.capabilities === "object",
    "It says what the agent can do",
    'Add "capabilities", if only {}.',
  );
  check(
    card.capabilities?.streaming === true,
    "Answers can be streamed",
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
      check(url(card[name]), `${name} is an address`, `Write "${name}" as an absolute URL.`);
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
  check(Boolean(card.signatures?.length), "It is signed", "Sign the card, so that clients know who wrote it.", "note");
  if (card.url !== undefined || card.protocolVersion !== undefined) {
    check(
      url(card.url) && text(card.protocolVersion) && text(card.preferredTransport),
      "Clients of 0.3 find their way",
      'Give "url", "protocolVersion" and "preferredTransport" together.',
      "warn",
    );
  } else {
    check(false, "Clients of 0.3 find their way", "Only clients of 1.0 can use this card.", "note");
  }
  return found;
}

function skills(list, check) {
  check(
    Array.isArray(list) && list.length > 0,
    "It has skills",
    'Add "skills": what the agent is good at, so that others can choose it.',
    "warn",
  );
  const all = Array.isArray(list) ? list : [];
  check(
    all.every((skill) => text(skill.id) && ID.test(skill.id) && text(skill.name) && text(skill.description)),
    "Every skill has an id, a name and a description",
    "Fill them in; the description is what other agents choose by.",
  );
  check(
    new Set(all.map(({ id }) => id)).size === all.length,
    "Skill ids are unique",
    "Two skills have the same id; rename one.",
  );
  check(
    all.every((skill) => Array.isArray(skill.tags) && skill.tags.length > 0),
    "Every skill has tags",
    "1.0 requires tags; one or two words are enough.",
    "warn",
  );
  check(
    all.length === 0 || all.some((skill) => skill.examples?.length),
    "There are examples",
    "An example or two show people what to say.",
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
    "Required schemes are described",
    'Every name in "securityRequirements" needs an entry in "securitySchemes".',
  );
  check(
    Object.keys(schemes).length > 0,
    "Callers are authenticated",
    "Without authentication, everybody who reaches the agent may use it.",
    "note",
  );
}
