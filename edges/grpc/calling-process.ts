/**
 * How a process that calls on the control socket says who it is: a header such as `uid=1000;pid=4711;user=ada`. The
 * operating system could tell for sure (SO_PEERCRED), but Node does not ask it.
 */
import type { CallingProcess } from "../../runtime/rpc.ts";

export const callerHeader = "muster-caller";

/** Longer ones are cut. */
const userCharactersMax = 32;
const pattern = /^uid=(\d{1,10});pid=(\d{1,10});user=([\w.@+-]*)$/;

export function callerText({ uid, pid, user }: CallingProcess): string {
  return `uid=${uid};pid=${pid};user=${user.replace(/[^\w.@+-]/g, "_").slice(0, userCharactersMax)}`;
}

/** Undefined for what is written differently: it is only lost, not refused. */
export function parseCaller(text: string): CallingProcess | undefined {
  const match = pattern.exec(text);
  if (match === null) return undefined;
  const [uid, pid] = [Number(match[1]), Number(match[2])];
  if (uid > 0xffffffff || pid > 0xffffffff) return undefined;
  return { uid, pid, user: (match[3] as string).slice(0, userCharactersMax) };
}
