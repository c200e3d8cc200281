/** `muster task stats` and `muster task signal`: resource usage of a running task, and signals to it. */
import { TaskSignal, TaskStatsWish } from "../../proto/gen/messages.ts";
import { TaskStats } from "../../proto/gen/nomad.ts";
import { command } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { findTask, withManager } from "../manager-client.ts";
import { formatTable } from "../table.ts";
import { callTask } from "./call.ts";
import { bytesText } from "../../machines/bytes-text.ts";
import { parseDuration } from "../values.ts";

const headers = ["TASK", "CPU %", "MEM USAGE", "MEM MAX", "PROCESSES"];

export const stats = command({
  operands: "TASK",
  min: 1,
  max: 1,
  summary: "Display a live stream of a driver plugin task's resource usage; --no-stream prints one sample.",
  options: {
    "no-stream": { type: "boolean", help: "Print one sample and exit" },
    interval: { type: "string", value: "DURATION", help: "Time between samples (default 1s)" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const task = await findTask(client, operands[0] as string);
      const { nanos, seconds } = parseDuration(values.interval ?? "1s", "interval");
      const intervalMs = Math.round(seconds * 1_000 + nanos / 1e6);
      if (intervalMs < 100) throw new UsageError("--interval must be at least 100ms");
      const enough = new AbortController();
      let isFirst = true;
      await callTask(
        client.channel,
        { taskId: task.id, stats: TaskStatsWish.create({ intervalMs }) },
        {
          onAnswer: (answer) => {
            if (answer.stats.length === 0 || enough.signal.aborted) return null;
            const lines = formatTable(headers, [rowOf(task.id, TaskStats.decode(answer.stats))]).split("\n");
            shell.print((isFirst ? lines : lines.slice(1)).join("\n"));
            isFirst = false;
            if (values["no-stream"] === true) enough.abort();
            return null;
          },
        },
        enough.signal,
      );
    }),
});

function rowOf(taskId: string, { aggResourceUsage, resourceUsageByPid }: TaskStats): readonly string[] {
  const { cpu = null, memory = null } = aggResourceUsage ?? {};
  const processes = Object.keys(resourceUsageByPid).length;
  return [
    taskId.slice(0, 12),
    cpu === null ? "--" : `${cpu.percent.toFixed(2)}%`,
    memory === null ? "--" : bytesText(memory.usage || memory.rss),
    memory === null || memory.maxUsage === 0 ? "--" : bytesText(memory.maxUsage),
    processes === 0 ? "--" : String(processes),
  ];
}

export const signal = command({
  operands: "TASK",
  min: 1,
  max: 1,
  summary: "Send a signal to a running task of a driver plugin.",
  options: {
    signal: {
      type: "string",
      short: "s",
      value: "SIGNAL",
      help: "Signal to send, such as SIGHUP or HUP (default SIGKILL)",
    },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const task = await findTask(client, operands[0] as string);
      const given = (values.signal ?? "SIGKILL").toUpperCase();
      const name = given.startsWith("SIG") ? given : `SIG${given}`;
      await callTask(
        client.channel,
        { taskId: task.id, signal: TaskSignal.create({ name }) },
        { onAnswer: () => null },
      );
      shell.print(operands[0] as string);
    }),
});
