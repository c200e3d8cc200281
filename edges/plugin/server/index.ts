/** The public API for task drivers in TypeScript (docs/drivers.md). */
export {
  retryable,
  type Attachment,
  type Driver,
  type ExecIdentity,
  type ExecRequest,
  type ExecSession,
  type Fingerprint,
  type RunningTask,
  type TaskExit,
  type TaskRequest,
  type TaskSample,
  type TerminalSize,
} from "./driver.ts";
export { block, blocks, flag, labelledBlocks, list, map, number, text, type ConfigOf, type Fields } from "./fields.ts";
export { pluginLog } from "./log.ts";
export { serveDriver } from "./serve.ts";
