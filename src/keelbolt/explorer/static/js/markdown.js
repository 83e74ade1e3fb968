// Markdown as DOM nodes. The source never becomes HTML, so tags in it stay visible text.
// Supported: paragraphs, headings, lists, tasks, quotes, code, tables, rules, emphasis, links and images.

import { h } from "./dom.js";
import { copyButton } from "./pieces.js";

const DEPTH = 8; // nested quotes, lists and emphasis; deeper levels stay text
const INLINE_CHARACTERS = 20_000; // limit of one paragraph; its rest stays text
const ADDRESS_CHARACTERS = 2000;
const LINK = /^(https?:\/\/|mailto:)/i;
const IMAGE = /^data:image\/(png|jpe?g|gif|webp);base64,[a-z0-9+/=]+$/i; // the CSP allows data: images; SVG is excluded

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?= |$)/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +(\S.*))?$/;
const DELIMITERS = /^\|?:?-+:?(\|:?-+:?)*\|?$/; // matches a line without spaces

export function markdown(source) {
  return h("div", { class: "md" }, blocks(source.replace(/\r\n?/g, "\n").replaceAll("\t", "    ").split("\n"), 0));
}

// ------------------------------------------------------------------------------------------------------- blocks

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (line.trim() === "") at += 1;
    else if (fence) at = code(lines, at, fence, found);
    else if (heading) {
      found.push(
        h(
          "p",
          { class: `md-heading md-${heading[1].length}` },
          inline(line.slice(heading[0].length).trim().replace(/ #+$/, "")),
        ),
      );
      at += 1;
    } else if (RULE.test(line)) {
      found.push(h("hr", {}));
      at += 1;
    } else if (QUOTE.test(line) && depth < DEPTH) at = quote(lines, at, depth, found);
    else if (ITEM.test(line) && depth < DEPTH) at = list(lines, at, depth, found);
    else if (isTable(lines, at)) at = table(lines, at, found);
    else at = paragraph(lines, at, depth, found);
  }
  return found;
}

function paragraph(lines, at, depth, found) {
  const kept = [lines[at]];
  at += 1;
  while (at < lines.length && lines[at].trim() !== "" && !begins(lines, at, depth)) {
    kept.push(lines[at]);
    at += 1;
  }
  // Line breaks of the source are kept: agents and users write lists and addresses without blank lines.
  found.push(h("p", {}, inline(kept.map((each) => each.replace(/\\$/, "").trim()).join("\n"))));
  return at;
}

// Returns whether another kind of block interrupts a paragraph here.
function begins(lines, at, depth) {
  const line = lines[at];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    (depth < DEPTH && (QUOTE.test(line) || /^ {0,3}([-*+]|1[.)]) +\S/.test(line))) ||
    isTable(lines, at)
  );
}

function code(lines, at, [, mark, info], found) {
  const kept = [];
  at += 1;
  while (at < lines.length && !(lines[at].trim().startsWith(mark) && /^ *(`+|~+) *$/.test(lines[at]))) {
    kept.push(lines[at]);
    at += 1;
  }
  const text = kept.join("\n");
  const language = info.trim().split(/\s/)[0];
  found.push(
    h(
      "figure",
      { class: "md-code" },
      h("figcaption", {}, h("span", {}, language), copyButton(text)),
      h("pre", { tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code" }, h("code", {}, text)),
    ),
  );
  return at + 1;
}

function quote(lines, at, depth, found) {
  const kept = [];
  while (at < lines.length && QUOTE.test(lines[at])) {
    kept.push(lines[at].replace(QUOTE, ""));
    at += 1;
  }
  found.push(h("blockquote", {}, blocks(kept, depth + 1)));
  return at;
}

function list(lines, at, depth, found) {
  const [, indent, first] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first);
  const items = [];
  while (at < lines.length) {
    const match = ITEM.exec(lines[at]);
    if (!match || match[1].length > indent.length + 3 || /\d/.test(match[2]) !== ordered) break;
    const kept = [match[3] ?? ""];
    const inside = match[1].length + 1; // deeper indented lines belong to this item
    at += 1;
    while (at < lines.length) {
      const blank = lines[at].trim() === "";
      const next = blank ? lines[at + 1] : lines[at];
      if (next === undefined || next.trim() === "") break;
      const deep = /^ */.exec(next)[0].length >= inside;
      if (!deep && (blank || begins(lines, at, depth) || ITEM.test(next))) break;
      kept.push(blank ? "" : lines[at].slice(Math.min(/^ */.exec(lines[at])[0].length, inside + match[2].length)));
      at += 1;
    }
    items.push(item(kept, depth));
    if (at < lines.length && lines[at].trim() === "" && ITEM.test(lines[at + 1] ?? "")) at += 1;
  }
  const start = ordered ? Number.parseInt(first, 10) : 1;
  found.push(h(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : null }, items));
  return at;
}

function item(lines, depth) {
  const task = /^\[([ xX])\] /.exec(lines[0]);
  if (task) lines[0] = lines[0].slice(4);
  const content = blocks(lines, depth + 1);
  const only = content.length === 1 && content[0].tagName === "P" ? [...content[0].childNodes] : content;
  return h("li", { class: task ? "md-task" : null }, task && (task[1] === " " ? "☐ " : "☑ "), only);
}

const isTable = (lines, at) =>
  lines[at].includes("|") && at + 1 < lines.length && DELIMITERS.test(lines[at + 1].replaceAll(" ", ""));

function table(lines, at, found) {
  const heads = cells(lines[at]);
  const align = cells(lines[at + 1]).map((each) => (/:$/.test(each) ? (/^:/.test(each) ? "center" : "right") : null));
  const rows = [];
  at += 2;
  while (at < lines.length && lines[at].trim() !== "" && lines[at].includes("|")) {
    rows.push(cells(lines[at]));
    at += 1;
  }
  const cell = (tag, text, index) => h(tag, { class: align[index] && `md-${align[index]}` }, inline(text ?? ""));
  const head = heads.map((text, index) => cell("th", text, index));
  const body = rows.map((row) =>
    h(
      "tr",
      {},
      heads.map((_, index) => cell("td", row[index], index)),
    ),
  );
  found.push(
    h(
      "div",
      { class: "md-table", tabindex: "0", role: "group", "aria-label": "Table" },
      h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
    ),
  );
  return at;
}

const cells = (line) =>
  line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "")
    .split(/(?<!\\)\|/)
    .map((each) => each.trim().replaceAll("\\|", "|"));

// ------------------------------------------------------------------------------------------------------- inline

function inline(text, depth = 0) {
  const reader = new Inline(text.slice(0, INLINE_CHARACTERS), depth);
  const found = reader.read();
  if (text.length > INLINE_CHARACTERS) found.push(text.slice(INLINE_CHARACTERS));
  return found;
}

// Reads from left to right. Searches once for each unclosed mark, so the time is linear.
class Inline {
  constructor(text, depth) {
    Object.assign(this, { text, depth, at: 0, plain: "", found: [], missing: new Set(), known: new Map() });
  }

  read() {
    while (this.at < this.text.length) {
      const taken = this.take(this.text[this.at]);
      if (taken) continue;
      this.plain += this.text[this.at];
      this.at += 1;
    }
    this.flush();
    return this.found;
  }

  push(node, end) {
    this.flush();
    this.found.push(node);
    this.at = end;
    return true;
  }

  flush() {
    if (this.plain) this.found.push(this.plain);
    this.plain = "";
  }

  end(mark, from) {
    if (this.missing.has(mark)) return -1;
    let end = this.known.get(mark) ?? -1;
    if (end < from) end = this.text.indexOf(mark, from);
    if (end < 0) this.missing.add(mark);
    else this.known.set(mark, end);
    return end;
  }

  take(character) {
    const { text, at } = this;
    if (character === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      this.plain += text[at + 1];
      this.at += 2;
      return true;
    }
    if (character === "\n") return this.push(h("br", {}), at + 1);
    if (character === "`") return this.code();
    if (this.depth >= DEPTH) return false;
    if (character === "*" || character === "_" || character === "~") return this.emphasis(character);
    if (character === "!" && text[at + 1] === "[") return this.bracket(at + 1, picture);
    if (character === "[") return this.bracket(at, (label, url) => anchor(inline(label, this.depth + 1), url));
    if (character === "<" || character === "h" || character === "H") return this.address(character);
    return false;
  }

  code() {
    const mark = /`+/y;
    mark.lastIndex = this.at;
    const [ticks] = mark.exec(this.text);
    const end = this.end(ticks, this.at + ticks.length);
    if (end < 0 || this.text[end + ticks.length] === "`") {
      this.plain += ticks;
      this.at += ticks.length;
      return true;
    }
    const inner = this.text.slice(this.at + ticks.length, end).replaceAll("\n", " ");
    return this.push(h("code", {}, /^ .* $/.test(inner) ? inner.slice(1, -1) : inner), end + ticks.length);
  }

  emphasis(character) {
    const { text, at } = this;
    const double = text[at + 1] === character;
    if (character === "~" && !double) return false;
    const mark = double ? character + character : character;
    const start = at + mark.length;
    if (/\s|^$/.test(text[start] ?? "")) return false; // a mark opens only before a word
    if (character === "_" && /\w/.test(text[at - 1] ?? "")) return false; // snake_case is unchanged
    let end = this.end(mark, start + 1);
    if (!double && text[end + 1] === character) end = text.indexOf(mark, end + 2); // ** inside *…*
    if (end < 0 || /\s/.test(text[end - 1])) return false;
    if (character === "_" && /\w/.test(text[end + mark.length] ?? "")) return false;
    if (double && text[end + 2] === character) end += 1; // ***both***
    const tag = character === "~" ? "del" : double ? "strong" : "em";
    return this.push(h(tag, {}, inline(text.slice(start, end), this.depth + 1)), end + mark.length);
  }

  // [label](address "title")
  bracket(open, make) {
    const middle = this.end("](", open + 1);
    if (middle < 0) return false;
    const label = this.text.slice(open + 1, middle);
    if (label.includes("[") && open === this.at) return false; // the inner link is read first
    const end = this.end(")", middle + 2);
    if (end < 0) return false;
    let url = this.text.slice(middle + 2, end).trim();
    if (url.length < ADDRESS_CHARACTERS) url = url.replace(/\s("[^"]*"|'[^']*')$/, "").replace(/^<(.*)>$/, "$1");
    const node = make(label, url.trim());
    return node ? this.push(node, end + 1) : false;
  }

  address(character) {
    const pattern =
      character === "<" ? /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy : /https?:\/\/[^\s<>"'`]{1,2000}/iy;
    if (character !== "<" && /\w/.test(this.text[this.at - 1] ?? "")) return false;
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (!match) return false;
    const url = match[1] ?? match[0].replace(/[.,;:!?)\]*_]+$/, "");
    return this.push(anchor([url], url), this.at + (match[1] ? match[0].length : url.length));
  }
}

// Returns null for an address that must not be opened by a click; the source stays text.
function anchor(content, url) {
  if (!LINK.test(url) || !URL.canParse(url)) return null;
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, content);
}

// External images become links: the page loads nothing from other sites, so they can't track readers.
function picture(label, url) {
  if (IMAGE.test(url)) return h("img", { src: url, alt: label });
  return anchor([`Image: ${label || url}`], url);
}
