export const systemView = { id: "system", title: "System", async open({ main }) {} };
