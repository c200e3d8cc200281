/**
 * Moves an engine from one cluster to another: demoted, drained, left, joined, and watched until its tasks run; or back to where it
 * was, whatever fails.
 *
 * MV1: after a failure at any call, whether or not the call had an effect, the engine is again a member of the cluster that it came
 *      from, with its role, availability and labels, and of no other; or the error says that it could not be brought back.
 */
import { UserError } from "../../lib/user-error.ts";

/** Between two questions, in milliseconds. */
const askMs = 500;
/** SwarmKit's default monitoring time: tasks that run for so long are taken for stable, in milliseconds. */
const stableMs = 5_000;

export type Availability = "active" | "pause" | "drain";

export interface NodeSettings {
  readonly isManager: boolean;
  readonly availability: Availability;
  readonly labels: Readonly<Record<string, string>>;
}

interface MemberNode extends NodeSettings {
  readonly isReady: boolean;
}

/** One of the two clusters. All calls reject with UserError. */
export interface Cluster {
  /** In sentences. */
  readonly name: string;
  /** Null: it has no such node. */
  node(id: string): Promise<MemberNode | null>;
  change(id: string, settings: Partial<NodeSettings>): Promise<void>;
  /** Resolves also without such a node. */
  remove(id: string): Promise<void>;
  /** With what an engine joins. */
  entry(asManager: boolean): Promise<{ readonly token: string; readonly addresses: readonly string[] }>;
  /** Whether each task runs that the cluster wants on a node. */
  tasks(nodeId: string): Promise<readonly boolean[]>;
}

export interface Membership {
  /** `away`: the engine belongs to no cluster. */
  readonly state: "away" | "joining" | "member";
  /** Empty until it has joined. */
  readonly nodeId: string;
  readonly isManager: boolean;
}

/** All calls reject with UserError. */
export interface MovedEngine {
  readonly name: string;
  membership(): Promise<Membership>;
  /** Number of containers of tasks that run. */
  tasks(): Promise<number>;
  leave(isForced: boolean): Promise<void>;
  join(token: string, addresses: readonly string[]): Promise<void>;
}

export interface Move {
  readonly engine: MovedEngine;
  readonly from: Cluster;
  readonly to: Cluster;
  /** Longest duration of one step, in milliseconds. */
  readonly timeoutMs: number;
  /** Once aborted, the engine is brought back. */
  readonly signal: AbortSignal;
  readonly say: (text: string) => void;
  readonly now: () => number;
  readonly wait: (ms: number) => Promise<void>;
}

/** Rejects with UserError; the engine is then back, or the error says what is left to do by hand. */
export async function moveEngine(move: Move): Promise<void> {
  const { engine, from, say, to } = move;
  const { nodeId, state } = await engine.membership();
  if (state === "joining")
    throw new UserError(`${engine.name} is joining a cluster, or cannot: see 'docker info' there`);
  if (state === "away") {
    say(`${engine.name} belongs to no cluster`);
    const id = await enter(move, to, "worker");
    return settle(move, id);
  }
  const present = await to.node(nodeId);
  if (present !== null)
    return say(`${engine.name} is a node of ${to.name} already, with availability ${present.availability}`);
  const former = await from.node(nodeId);
  if (former === null) throw new UserError(`${engine.name} is a node of neither ${from.name} nor ${to.name}`);
  try {
    await vacate(move, nodeId, former);
    const id = await enter(move, to, "worker");
    if (Object.keys(former.labels).length > 0) await to.change(id, { labels: former.labels });
    await settle(move, id);
  } catch (error) {
    say(`${(error as Error).message}: bringing ${engine.name} back`);
    try {
      await bringBack({ ...move, signal: new AbortController().signal }, nodeId, former);
    } catch (failure) {
      const why = `${(failure as Error).message}`;
      throw new UserError(
        `${engine.name} has not moved and could not be brought back (${why}): the last line shows where it is`,
        { cause: error },
      );
    }
    throw new UserError(`${engine.name} has not moved, and is in ${from.name} as before: ${(error as Error).message}`, {
      cause: error,
    });
  }
  // Last: until then, the record shows what the node was.
  await from.remove(nodeId).catch((error: unknown) => {
    say(
      `${engine.name} has moved, but its former node ${nodeId} is still in ${from.name}: ${(error as Error).message}`,
    );
  });
}

/** Ends the engine's tasks, and its membership. */
async function vacate(move: Move, nodeId: string, former: NodeSettings): Promise<void> {
  const { engine, from, say } = move;
  if (former.isManager) {
    say(`demoting ${engine.name} in ${from.name}`);
    await from.change(nodeId, { isManager: false });
    await until(move, "the demotion", async () => !(await engine.membership()).isManager);
  }
  say(`draining ${engine.name} in ${from.name}`);
  await from.change(nodeId, { availability: "drain" });
  await until(move, "its tasks to end", async () => (await engine.tasks()) === 0);
  say(`${engine.name} leaves ${from.name}`);
  await engine.leave(false);
  await until(move, "it to leave", async () => (await engine.membership()).state === "away");
}

/** Returns the id of the new node once it is ready. */
async function enter(move: Move, cluster: Cluster, role: "worker" | "manager"): Promise<string> {
  const { engine, say } = move;
  say(`${engine.name} joins ${cluster.name}`);
  const { addresses, token } = await cluster.entry(role === "manager");
  const { state } = await engine.membership();
  if (state === "away")
    await engine.join(token, addresses).catch(async (error: unknown) => {
      // An engine that needs longer than 20 s says so, and goes on.
      if ((await engine.membership()).state === "away") throw error;
    });
  return until(move, `it to be ready in ${cluster.name}`, async () => {
    const { nodeId } = await engine.membership();
    if (nodeId === "") return null;
    return (await cluster.node(nodeId))?.isReady === true ? nodeId : null;
  });
}

/** Resolves once all tasks of the node have run for a while. */
async function settle(move: Move, nodeId: string): Promise<void> {
  const { engine, now, say, to } = move;
  let since: number | null = null;
  let count = 0;
  await until(move, "its tasks to run", async () => {
    const tasks = await to.tasks(nodeId);
    const isSame = tasks.length === count && tasks.every((runs) => runs);
    count = tasks.length;
    if (!isSame) since = null;
    else since ??= now();
    return since !== null && now() - since >= stableMs;
  });
  say(`${engine.name} is a node of ${to.name}, and runs ${count} ${count === 1 ? "task" : "tasks"}`);
}

/** MV1. Each step is repeated until it succeeds, or its time has passed; none does harm twice. */
async function bringBack(move: Move, formerId: string, former: MemberNode): Promise<void> {
  const { engine, from, say, to } = move;
  const insist = (what: string, step: () => Promise<void>): Promise<true> =>
    until(move, what, async () => {
      await step();
      return true;
    });
  let id = formerId;
  const others = new Set<string>();
  await insist("it to leave", async () => {
    const { nodeId, state } = await engine.membership();
    if (state === "away") return;
    if (state === "member" && (await from.node(nodeId)) !== null) return;
    if (nodeId !== "") others.add(nodeId);
    await engine.leave(true);
  });
  for (const other of others) await insist("its node to be removed", () => to.remove(other));
  await insist("it to join again", async () => {
    const { nodeId, state } = await engine.membership();
    if (state === "member" && (await from.node(nodeId)) !== null) id = nodeId;
    else id = await enter(move, from, former.isManager ? "manager" : "worker");
  });
  const { availability, isManager, labels } = former;
  await insist("its settings", () => from.change(id, { availability, isManager, labels }));
  await until(move, "its role", async () => (await engine.membership()).isManager === isManager);
  if (id !== formerId) await insist("its former node to be removed", () => from.remove(formerId));
  say(`${engine.name} is a node of ${from.name} again`);
}

/** Failures of the condition are repeated, too. Rejects with UserError after the step's time, or once the move is aborted. */
async function until<Result>(
  { now, signal, timeoutMs, wait }: Move,
  what: string,
  condition: () => Promise<Result>,
): Promise<Exclude<Result, false | null>> {
  const deadline = now() + timeoutMs;
  let reason = "";
  for (;;) {
    if (signal.aborted) throw new UserError("interrupted");
    try {
      const result = await condition();
      if (result !== false && result !== null) return result as Exclude<Result, false | null>;
      reason = "";
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      reason = `: ${error.message}`;
    }
    if (now() >= deadline) throw new UserError(`waited ${Math.round(timeoutMs / 1_000)} s for ${what}${reason}`);
    await wait(askMs);
  }
}
