// The start of a task of the exec driver, as its shell reports it over a pipe.
import { EventEmitter } from "node:events";
import { PassThrough } from "node:stream";
import type { ChildProcess } from "node:child_process";
import test from "ava";
import { introduced } from "../../drivers/exec/introduction.ts";

function shell() {
  const pipe = new PassThrough();
  const child = Object.assign(new EventEmitter(), { stdio: [null, null, null, null, pipe] });
  return { child: child as unknown as Pick<ChildProcess, "stdio" | "once"> & EventEmitter, pipe };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("the reason of a failed start is found although the shell's exit is seen first", async (t) => {
  const { child, pipe } = shell();
  const outcome = introduced(child, "/nonexistent/run");
  child.emit("exit", 1, null);
  await turn();
  pipe.end("fail cannot show the task /gone: No such file or directory\n");
  t.is(await outcome, "cannot show the task /gone: No such file or directory");
});

test("a shell that exits without a word has not started the command", async (t) => {
  const { child, pipe } = shell();
  const outcome = introduced(child, "/nonexistent/run");
  pipe.end();
  child.emit("exit", 1, null);
  t.is(await outcome, "it exited before the command started");
});

test("a shell that cannot be started is reported", async (t) => {
  const { child } = shell();
  const outcome = introduced(child, "/nonexistent/run");
  child.emit("error", new Error("ENOENT"));
  t.is(await outcome, "it exited before the command started");
});
