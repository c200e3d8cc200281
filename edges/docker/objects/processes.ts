/** `/containers/{id}/top`: what `ps` says within the task. */
import { TaskCallRequest, TaskExec } from "../../../proto/gen/messages.ts";
import { Failure } from "../failure.ts";
import { ok, type DockerRequest, type Handler } from "../request.ts";
import { callTask, exitStatus } from "../task-call.ts";
import { findContainer, runningContainer } from "./containers.ts";

/** As much output of `ps` as is read, in bytes; more is an error. */
const outputBytesMax = 1_024 * 1_024;
const usualArguments = "-ef";

interface Listed {
  readonly status: number;
  readonly text: string;
  readonly complaint: string;
}

async function run({ calls, signal }: DockerRequest, taskId: string, command: readonly string[]): Promise<Listed> {
  const [out, err]: [Uint8Array[], Uint8Array[]] = [[], []];
  let size = 0;
  const enough = new AbortController();
  signal.addEventListener("abort", () => enough.abort(), { once: true });
  const { ended, send } = await callTask(
    calls,
    TaskCallRequest.create({ taskId, exec: TaskExec.create({ command }) }),
    {
      onAnswer({ stderr, stdout }) {
        size += stdout.length + stderr.length;
        if (size > outputBytesMax) return enough.abort();
        out.push(stdout);
        err.push(stderr);
      },
      waitingBytes: () => 0,
    },
    enough.signal,
  );
  void send({ close: true }).catch(() => undefined);
  const end = await ended.catch((error: unknown) => {
    if (size > outputBytesMax) throw new Failure(500, `the output of ${command.join(" ")} has more than 1 MiB`);
    throw error;
  });
  const text = (parts: readonly Uint8Array[]): string => Buffer.concat(parts).toString("utf8");
  return { status: end === null ? 1 : exitStatus(end), text: text(out), complaint: text(err).trim() };
}

/** The last column contains spaces. */
function tableOf(
  text: string,
  own: string,
): { readonly Titles: readonly string[]; readonly Processes: readonly string[][] } {
  const [first = "", ...rest] = text.split("\n").filter((line) => line.trim() !== "");
  const titles = first.trim().split(/\s+/);
  const rows = rest.map((line) => {
    const fields = line.trim().split(/\s+/);
    return [...fields.slice(0, titles.length - 1), fields.slice(titles.length - 1).join(" ")];
  });
  return { Titles: titles, Processes: rows.filter((row) => row.at(-1) !== own) };
}

export const listProcesses: Handler = async (request) => {
  const given = request.query.get("ps_args") || usualArguments;
  const { task } = runningContainer(await findContainer(request, request.name));
  let command = ["ps", ...given.split(/\s+/).filter(Boolean)];
  let listed = await run(request, task.id, command);
  // The one of busybox knows no such options, and lists every process without them.
  if (listed.status === 1 && given === usualArguments) listed = await run(request, task.id, (command = ["ps"]));
  if (listed.status !== 0)
    throw new Failure(500, `Error running ps in the task: exit status ${listed.status}: ${listed.complaint}`);
  return ok(tableOf(listed.text, command.join(" ")));
};
