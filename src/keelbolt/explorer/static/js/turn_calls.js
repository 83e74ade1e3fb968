// Calls for the turns in the same storage, of one tenant.

import { ops } from "./api.js";
import { here } from "./router.js";

export const tenant = () => here().query.tenant;

export const turns = (path, query = {}) => ops("GET", `/turns${path}`, { query: { ...query, tenant: tenant() } });

// Escapes a value for the path of a call.
export const named = (...refs) => refs.map(encodeURIComponent).join("/");
