// A form for a JSON Schema, and validation of its value. Supports the subset of JSON Schema that forms need.

import { h } from "./dom.js";
import { field } from "./pieces.js";

const resolve = (schema, root) => {
  for (let turn = 0; schema?.$ref?.startsWith("#/") && turn < 20; turn += 1) {
    schema = schema.$ref
      .slice(2)
      .split("/")
      .reduce((place, name) => place?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], root);
  }
  const choice = schema?.anyOf ?? schema?.oneOf;
  if (choice && !schema.type) {
    const real = choice.filter((each) => each.type !== "null");
    if (real.length === 1)
      return { ...schema, ...resolve(real[0], root), anyOf: undefined, oneOf: undefined, nullable: true };
  }
  return schema ?? {};
};

const typeOf = (schema) =>
  (Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type) ??
  (schema.properties ? "object" : undefined);

// -------------------------------------------------------------------------------------------------------- check

// Returns the problems as [{path, text}]; an empty list means a valid value.
export function validate(value, schema, root = schema, path = "") {
  schema = resolve(schema, root);
  const problems = [];
  const say = (text) => problems.push({ path: path || "the input", text });
  const kind =
    value === null ? "null" : Array.isArray(value) ? "array" : Number.isInteger(value) ? "integer" : typeof value;
  const types = [schema.type].flat().filter(Boolean);
  if (schema.nullable) types.push("null");
  if (schema.type && !types.includes(kind) && !(kind === "integer" && types.includes("number"))) {
    say(`is ${kind}, but must be ${types.join(" or ")}`);
    return problems;
  }
  if (schema.enum && !schema.enum.some((each) => JSON.stringify(each) === JSON.stringify(value)))
    say(`is not one of ${schema.enum.map((each) => JSON.stringify(each)).join(", ")}`);
  if ("const" in schema && JSON.stringify(schema.const) !== JSON.stringify(value))
    say(`is not ${JSON.stringify(schema.const)}`);
  if (typeof value === "number") {
    if (value < schema.minimum) say(`is less than ${schema.minimum}`);
    if (value > schema.maximum) say(`is more than ${schema.maximum}`);
    if (value <= schema.exclusiveMinimum) say(`is not more than ${schema.exclusiveMinimum}`);
    if (value >= schema.exclusiveMaximum) say(`is not less than ${schema.exclusiveMaximum}`);
  }
  if (typeof value === "string") {
    if (value.length < schema.minLength) say(`has fewer than ${schema.minLength} characters`);
    if (value.length > schema.maxLength) say(`has more than ${schema.maxLength} characters`);
    if (schema.pattern && !matches(schema.pattern, value)) say(`does not match ${schema.pattern}`);
  }
  if (Array.isArray(value)) {
    if (value.length < schema.minItems) say(`has fewer than ${schema.minItems} items`);
    if (value.length > schema.maxItems) say(`has more than ${schema.maxItems} items`);
    if (schema.items)
      value.forEach((each, index) => problems.push(...validate(each, schema.items, root, `${path}[${index}]`)));
  } else if (value && typeof value === "object") {
    for (const name of schema.required ?? [])
      if (!(name in value)) problems.push({ path: join(path, name), text: "is required" });
    for (const [name, each] of Object.entries(value)) {
      const member = schema.properties?.[name];
      if (member) problems.push(...validate(each, member, root, join(path, name)));
      else if (schema.additionalProperties === false) problems.push({ path: join(path, name), text: "is not allowed" });
    }
  }
  return problems;
}

const join = (path, name) => (path ? `${path}.${name}` : name);

function matches(pattern, value) {
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true;
  }
}

// --------------------------------------------------------------------------------------------------------- form

// Fields of an object schema. `read()` returns the value; `onChange` is called after each possible change.
export function schemaForm(schema, onChange, value = {}) {
  const controls = [];
  const element = h(
    "div",
    { class: "schema stack", oninput: onChange, onchange: onChange },
    object(resolve(schema, schema), schema, [], value ?? {}, controls, 0),
  );
  const read = () => {
    const found = {};
    for (const { path, get } of controls) {
      const each = get();
      if (each === undefined) continue;
      let place = found;
      path.slice(0, -1).forEach((name) => {
        place = place[name] ??= {};
      });
      place[path.at(-1)] = each;
    }
    return found;
  };
  return { element, read };
}

// Fields of any schema; other values than objects have one field. `problems()` returns sentences.
export function answerForm(schema, onChange = () => {}, value = undefined) {
  const real = resolve(schema, schema);
  const whole = typeOf(real) === "object" && real.properties;
  const shaped = whole
    ? schema
    : { ...schema, properties: { answer: { title: "Answer", ...real } }, required: ["answer"] };
  const form = schemaForm(
    whole ? schema : { ...shaped, type: "object", enum: undefined },
    onChange,
    whole ? value : { answer: value },
  );
  const read = () => (whole ? form.read() : form.read().answer);
  const problems = () =>
    whole || read() !== undefined
      ? validate(read(), schema).map(({ path, text }) => `${path === "the input" ? "The answer" : path} ${text}`)
      : ["The answer is missing"];
  return { element: form.element, read, problems };
}

function object(schema, root, path, value, controls, depth) {
  return Object.entries(schema.properties ?? {}).map(([name, given]) => {
    const member = resolve(given, root);
    const here = [...path, name];
    const start = value?.[name] ?? member.default;
    const needed = (schema.required ?? []).includes(name);
    const label = `${member.title ?? name}${needed ? " (required)" : ""}`;
    if (typeOf(member) === "object" && member.properties && depth < 4) {
      return h("fieldset", {}, h("legend", {}, label), object(member, root, here, start ?? {}, controls, depth + 1));
    }
    const { control, get } = one(member, start, needed);
    controls.push({ path: here, get });
    control.name = here.join(".");
    return field(label, control, member.description);
  });
}

function one(schema, start, needed) {
  const type = typeOf(schema);
  if (schema.enum) {
    const control = h(
      "select",
      {},
      !needed && h("option", { value: "" }, "–"),
      schema.enum.map((each, index) =>
        h("option", { value: String(index), selected: JSON.stringify(each) === JSON.stringify(start) }, String(each)),
      ),
    );
    return { control, get: () => (control.value === "" ? undefined : schema.enum[Number(control.value)]) };
  }
  if (type === "boolean") {
    const control = h(
      "select",
      {},
      !needed && h("option", { value: "" }, "–"),
      h("option", { value: "true", selected: start === true }, "yes"),
      h("option", { value: "false", selected: start === false }, "no"),
    );
    return { control, get: () => (control.value === "" ? undefined : control.value === "true") };
  }
  if (type === "integer" || type === "number") {
    const control = h("input", {
      type: "number",
      step: type === "integer" ? "1" : "any",
      value: start ?? "",
      min: schema.minimum,
      max: schema.maximum,
    });
    return { control, get: () => (control.value === "" ? undefined : Number(control.value)) };
  }
  if (type === "string") {
    const long = (schema.maxLength ?? 0) > 200 || schema.format === "textarea";
    const control = long
      ? h("textarea", { rows: "3", value: start ?? "" })
      : h("input", {
          type: schema.format === "password" || schema.writeOnly ? "password" : "text",
          value: start ?? "",
        });
    return { control, get: () => (control.value === "" && !needed ? undefined : control.value) };
  }
  const control = h("textarea", {
    rows: "3",
    class: "mono",
    value: start === undefined ? "" : JSON.stringify(start, null, 2),
    placeholder: type === "array" ? "[…]" : "JSON",
  });
  return {
    control,
    get: () => {
      if (control.value.trim() === "") return undefined;
      try {
        return JSON.parse(control.value);
      } catch {
        return control.value;
      }
    },
  };
}
