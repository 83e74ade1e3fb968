// Differences between two JSON values: added, removed and changed paths.

const MOST = 300;

export function diff(before, after, path = "", found = []) {
  if (found.length >= MOST || Object.is(before, after)) return found;
  const nested = (value) => value !== null && typeof value === "object";
  if (nested(before) && nested(after) && Array.isArray(before) === Array.isArray(after)) {
    for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
      const place = Array.isArray(after) ? `${path}[${name}]` : path ? `${path}.${name}` : name;
      if (!(name in before)) found.push({ path: place, kind: "added", after: after[name] });
      else if (!(name in after)) found.push({ path: place, kind: "removed", before: before[name] });
      else diff(before[name], after[name], place, found);
    }
    return found;
  }
  if (JSON.stringify(before) !== JSON.stringify(after)) found.push({ path, kind: "changed", before, after });
  return found;
}

// Returns the length of the common prefix of two texts.
export function commonStart(one, other) {
  let at = 0;
  while (at < one.length && at < other.length && one[at] === other[at]) at += 1;
  return at;
}
