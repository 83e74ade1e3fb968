// Calls for the agents' state (StateStore) in the same storage, of one tenant.

import { ops } from "./api.js";
import { here } from "./router.js";

export const tenant = () => here().query.tenant;

export const state = (path, query = {}) => ops("GET", `/state${path}`, { query: { ...query, tenant: tenant() } });

export const named = (ref) => encodeURIComponent(ref);
