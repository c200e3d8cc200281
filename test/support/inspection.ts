/** A manager that serves `Inspection` from a script, and the muster command run against it in this process. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import { createControl } from "../../actors/control.ts";
import { run } from "../../cli/run.ts";
import { processShell, type Screen, type Shell } from "../../cli/shell.ts";
import { createGrpcServer } from "../../edges/grpc/server.ts";
import type { RecordingPart } from "../../proto/gen/messages.ts";
import {
  ActorFeed,
  ActorSnapshot,
  ActorState,
  ActorStep,
  ArmedTimer,
  ControlService,
  InspectionService,
  type RecentActorsRequest,
  type WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import type { RpcError, Sink } from "../../runtime/ports/rpc.ts";
import * as pki from "../../lib/pki/index.ts";
import { testManager, type TestManager } from "./manager.ts";
import type { Ran } from "./served.ts";

export interface Scene {
  /** Sent in answer to each Watch, in order. */
  feeds: readonly ActorFeed[];
  /** The recording that Recent sends; an error: its outcome. */
  recent: readonly RecordingPart[] | RpcError;
  /** The error that Watch ends with; null: it stays open. */
  refusal: RpcError | null;
}

export interface InspectedManager {
  readonly scene: Scene;
  /** Its objects are those of the cluster. */
  readonly manager: TestManager;
  readonly watches: WatchActorsRequest[];
  /** To the calls of Watch that are open. */
  send(...feeds: readonly ActorFeed[]): void;
  /** Closes the connections and the socket, until `listen`. */
  stop(): Promise<void>;
  listen(): Promise<void>;
  readonly muster: (...args: readonly string[]) => Promise<Ran>;
  /** Runs until interrupted. */
  readonly start: (...args: readonly string[]) => Started;
  readonly socket: string;
}

interface Started {
  readonly lines: readonly string[];
  /** All that was written raw to standard output. */
  readonly written: () => string;
  /** Interrupts the command as Ctrl-C does. */
  interrupt(): void;
  readonly done: Promise<Ran>;
}

interface Options {
  /** The terminal that commands print to; null: a pipe. */
  readonly screen?: Screen | null;
  readonly now?: () => number;
}

export async function inspectedManager(
  t: ExecutionContext,
  { screen = null, now = () => Date.now() }: Options = {},
): Promise<InspectedManager> {
  const scene: Scene = { feeds: [], recent: [], refusal: null };
  const watches: WatchActorsRequest[] = [];
  /** The calls that are open, each with the last sequence number of each process. */
  const open = new Map<Sink<ActorFeed>, Map<string, number>>();
  const folder = mkdtempSync(join(tmpdir(), "muster-"));
  const socket = join(folder, "control.sock");
  const manager = testManager();
  let server = createGrpcServer({ telemetry: manager.env.telemetry });

  /** Numbers the message, unless it has a number. */
  function write(sink: Sink<ActorFeed>, feed: ActorFeed): void {
    const sequences = open.get(sink);
    const sequence = feed.sequence === 0 ? (sequences?.get(feed.process) ?? 0) + 1 : feed.sequence;
    sequences?.set(feed.process, sequence);
    sink.write(ActorFeed.patch(feed, { sequence }));
  }

  async function listen(): Promise<void> {
    server = createGrpcServer({ telemetry: manager.env.telemetry });
    server.add(InspectionService, {
      Record: (_, sink) => sink.end(),
      Watch(request, sink, call) {
        watches.push(request);
        if (scene.refusal !== null) {
          sink.end(scene.refusal);
          return;
        }
        open.set(sink, new Map());
        call.signal.addEventListener("abort", () => open.delete(sink), { once: true });
        for (const feed of scene.feeds) write(sink, selected(feed, request));
      },
      Recent(_: RecentActorsRequest, sink) {
        if (!Array.isArray(scene.recent)) {
          sink.end(scene.recent as RpcError);
          return;
        }
        for (const part of scene.recent as readonly RecordingPart[]) sink.write(part);
        sink.end();
      },
    });
    server.add(ControlService, createControl(manager.env, { leaderId: () => "manager1", authority: pki }).handlers);
    await server.listenUnix(socket);
  }

  async function stop(): Promise<void> {
    open.clear();
    await server.close(0);
    rmSync(socket, { force: true });
  }

  t.teardown(async () => {
    await stop();
    rmSync(folder, { recursive: true, force: true });
  });
  await listen();

  function start(...args: readonly string[]): Started {
    const lines: string[] = [];
    const remarks: string[] = [];
    let written = "";
    const shellAt = (host: string): Shell => ({
      ...processShell(host),
      print: (text) => void lines.push(...text.split("\n")),
      write(data) {
        written += new TextDecoder().decode(data);
        return null;
      },
      remark: (text) => void remarks.push(...text.split("\n")),
      isInteractive: false,
      width: screen?.columns ?? null,
      screen: () => screen,
      now,
      at: shellAt,
    });
    const done = run(args, shellAt(socket)).then((status) => ({ status, lines, remarks }));
    return { lines, written: () => written, interrupt: () => void process.emit("SIGINT"), done };
  }

  return {
    scene,
    manager,
    watches,
    send: (...feeds) => {
      for (const sink of open.keys()) for (const feed of feeds) write(sink, feed);
    },
    stop,
    listen,
    muster: (...args) => start(...args).done,
    start,
    socket,
  };
}

/** The message without the actors that were not selected, as the service sends it. */
function selected(feed: ActorFeed, { selection }: WatchActorsRequest): ActorFeed {
  const wanted = selection?.actors ?? [];
  if (wanted.length === 0 || feed.snapshot === null) return feed;
  const actors = feed.snapshot.actors.filter(({ actor }) =>
    wanted.some((each) => actor === each || (each.endsWith("/") && actor.startsWith(each))),
  );
  return ActorFeed.patch(feed, { snapshot: ActorSnapshot.patch(feed.snapshot, { actors }) });
}

export const snapshot = (process: string, actors: readonly ActorState[], fields: Partial<ActorFeed> = {}): ActorFeed =>
  ActorFeed.create({
    process,
    hostname: `host-of-${process}`,
    snapshot: ActorSnapshot.create({ begins: true, ends: true, actors }),
    ...fields,
  });

export const actor = (
  id: string,
  machine: string,
  states: readonly string[],
  fields: Partial<ActorState> = {},
): ActorState => ActorState.create({ actor: id, machine, states, ...fields });

export const timer = (delay: string, state: string, armedAtMs: number, dueAtMs: number): ArmedTimer =>
  ArmedTimer.create({ delay, state, armedAtMs, dueAtMs });

export const stepOf = (id: string, machine: string, number: number, fields: Partial<ActorStep>): ActorStep =>
  ActorStep.create({ actor: id, machine, number, ...fields });
