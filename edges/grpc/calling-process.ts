/**
 * How a process identifies itself on the control socket: a header such as `uid=1000;pid=4711;user=ada`. The operating system
 * could verify it (SO_PEERCRED), but Node offers no access to that.
 */
import type { CallingProcess } from "../../runtime/ports/rpc.ts";

export const callerHeader = "muster-caller";

/** Longer names are truncated. */
const userCharactersMax = 32;
const pattern = /^uid=(\d{1,10});pid=(\d{1,10});user=([\w.@+-]*)$/;

export function callerText({ uid, pid, user }: CallingProcess): string {
  return `uid=${uid};pid=${pid};user=${user.replace(/[^\w.@+-]/g, "_").slice(0, userCharactersMax)}`;
}

/** Undefined for any other format: the information is dropped, the call goes on. */
export function parseCaller(text: string): CallingProcess | undefined {
  const match = pattern.exec(text);
  if (match === null) return undefined;
  const [uid, pid] = [Number(match[1]), Number(match[2])];
  if (uid > 0xffffffff || pid > 0xffffffff) return undefined;
  return { uid, pid, user: (match[3] as string).slice(0, userCharactersMax) };
}
