// Processes that run seeds, with small programs instead of simulations.
import test from "ava";
import { runPool, startPoolProcess } from "../../simulation/pool.ts";

const programOf = (source: string) => ({ command: process.execPath, args: ["--eval", source] });

test("a process that was started before its pool runs the first seeds", async (t) => {
  const program = programOf(`
    process.on("message", ({ kind }) => kind === "seed" && process.send({ kind: "result", result: process.pid }))`);
  const started = startPoolProcess(program);
  const pids: number[] = [];
  await runPool<null, number>({
    program,
    started,
    settings: null,
    from: 1,
    count: 3,
    processes: 1,
    lost: () => 0,
    onResult: (_seed, pid) => void pids.push(pid),
  });
  t.deepEqual(
    pids,
    Array.from({ length: 3 }, () => started.pid),
  );
});

test("a process that Ctrl-C ends while it is loading has no result; without Ctrl-C its end is one", async (t) => {
  const program = programOf(`process.send({ kind: "progress", progress: 0 }); process.on("message", () => undefined)`);
  const resultsOf = async (isInterrupted: boolean): Promise<readonly string[]> => {
    const started = startPoolProcess(program);
    const interrupt = new AbortController();
    const results: string[] = [];
    await runPool<null, string>({
      program,
      started,
      settings: null,
      from: 1,
      count: 1,
      processes: 1,
      lost: (how) => how,
      onResult: (_seed, how) => void results.push(how),
      onProgress: () => {
        if (isInterrupted) interrupt.abort();
        started.kill("SIGINT");
      },
      signal: interrupt.signal,
    });
    return results;
  };
  t.deepEqual(await resultsOf(true), []);
  t.deepEqual(await resultsOf(false), ["SIGINT"]);
});
