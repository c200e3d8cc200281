/** `import … from "muster/driver"`: task drivers in TypeScript (docs/drivers.md). */
export * from "../edges/plugin/server/index.ts";
