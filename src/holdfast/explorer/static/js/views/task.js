export const taskView = { id: "task", title: "Task", async open({ main }) {} };
