// Parses the name of a partition into tenant and owner.

export function parsePartition(name) {
  const plain = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };
  if (name === "~anonymous") return { label: "anonymous callers", query: null };
  if (name.includes("~")) return { label: name, query: null }; // shortened or unnamed: can't be queried
  if (name.includes("//")) {
    const [owner, tenant] = name.split("//").map(plain);
    return { label: `${owner} (claimed: ${tenant})`, query: { owner, askedTenant: tenant } };
  }
  if (name.includes("/")) {
    const [tenant, owner] = name.split("/").map(plain);
    return { label: owner ? `${owner} of ${tenant}` : `anonymous callers of ${tenant}`, query: { tenant, owner } };
  }
  return { label: plain(name), query: { owner: plain(name) } };
}
