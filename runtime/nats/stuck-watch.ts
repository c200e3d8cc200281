/**
 * Checks our own nats-server once a second by JetStream's answers on our link, and restarts it when it is stuck (`stuck.ts`).
 */
import { readFile } from "node:fs/promises";
import type { NatsLink } from "./connection.ts";
import type { NatsServer } from "./server.ts";
import { judge, notJudged, type ServerState, type StuckJudgement } from "./stuck.ts";

const checkMs = 1_000;
/** Linux's unit of CPU times in /proc. */
const tickMs = 10;

export interface StuckWatch {
  /** State of the server's process at the last check. */
  readonly state: ServerState;
  stop(): void;
}

export function watchForStuck(server: NatsServer, link: Pick<NatsLink, "unserved">): StuckWatch {
  let judgement: StuckJudgement = notJudged;
  let seen: ServerState = "alive";
  let isStopped = false;
  const check = async (): Promise<void> => {
    // After the sockets have been read, so that an answer that has arrived counts.
    await new Promise((resolve) => setImmediate(resolve));
    const { cpuMs, state } = await processStatus(server.pid);
    if (isStopped) return;
    seen = state;
    const silence = link.unserved();
    judgement = judge(judgement, {
      at: performance.now(),
      unservedMs: silence?.ms ?? 0,
      isRunning: server.isRunning,
      state,
      cpuMs,
      freeBytes: server.disk.space.writableBytes,
    });
    if (judgement.isStuck) server.restart(silence?.reason ?? "");
    timer = setTimeout(() => void check(), checkMs);
  };
  let timer = setTimeout(() => void check(), checkMs);
  return {
    get state() {
      return seen;
    },
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}

/** Without /proc, a server never counts as busy or stopped. */
async function processStatus(pid: number): Promise<{ readonly cpuMs: number; readonly state: ServerState }> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    // After the command, which is in parentheses: state is field 3, user and system time are 14 and 15.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [letter = ""] = fields;
    const state = letter === "T" || letter === "t" ? "stopped" : letter === "D" ? "waiting" : "alive";
    return { cpuMs: (Number(fields[11]) + Number(fields[12])) * tickMs, state };
  } catch {
    return { cpuMs: 0, state: "alive" };
  }
}
