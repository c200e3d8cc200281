/**
 * Watching clients: each follows one question from the first version on, at any manager that answers, and resumes from its last
 * version when its stream breaks or it drops it.
 *
 * S10: a watcher gets each change of its question once, in order, and as the replicas saw it, whichever managers send it.
 */
import { answerOf, type Question } from "../../actors/watch/fanout.ts";
import { watchFilter } from "../../machines/watch/filter.ts";
import {
  SelectBy,
  TaskState,
  Version,
  WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
} from "../../proto/gen/messages.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { sha256, toHex } from "../../runtime/store/record.ts";
import type { Commit } from "../../runtime/store/store.ts";
import type { ClientOptions } from "./client.ts";

interface WatchWorkloadOptions extends Omit<ClientOptions, "identity"> {
  /** The cluster's id; empty before there is one. */
  organization(): string;
  readonly watchers: number;
  /** Streams are dropped deliberately for this many milliseconds. */
  readonly withinMs: number;
  onViolation(claim: string): void;
}

const retryMsMax = 1_500;
const dropMsMax = 12_000;

const questions: readonly (readonly WatchRequest_WatchEntry[])[] = [
  [entry("task", 7), entry("node", 7)],
  [entry("task", 7, SelectBy.create({ desiredState: TaskState.RUNNING }))],
  [entry("service", 3), entry("task", 4), entry("network", 7)],
];

function entry(kind: string, action: number, ...filters: readonly SelectBy[]): WatchRequest_WatchEntry {
  return WatchRequest_WatchEntry.create({ kind, action: action as never, filters });
}

function requestFor(question: number, from: number): WatchRequest {
  const resumeFrom = Version.create({ index: from });
  return WatchRequest.create({ entries: questions[question] ?? [], resumeFrom, includeOldObject: true });
}

function questionOf(at: number): Question {
  const filters = requestFor(at, 0).entries.map((each) => {
    const outcome = watchFilter(each, () => false);
    if (outcome.kind === "refused") throw new Error(outcome.refusal.message);
    return outcome.filter;
  });
  return { key: String(at), filters, includesOld: true };
}

function digestOf(message: WatchMessage): string {
  return toHex(sha256(WatchMessage.encode(message)));
}

export class WatchWorkload {
  readonly #options: WatchWorkloadOptions;
  readonly #random: SimRandom;
  readonly #questions = questions.map((_, at) => questionOf(at));
  /** By question: the versions with an answer, in order, and digests of the answers. */
  readonly #wanted = questions.map(() => [] as { readonly version: number; readonly digest: string }[]);
  readonly #watchers: Watcher[] = [];
  #seen = 0;
  #isExcused = false;

  constructor(options: WatchWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.watch");
  }

  start(): void {
    const { watchers, ports, withinMs } = this.#options;
    for (let at = 0; at < watchers; at += 1) {
      const watcher = new Watcher(this.#options, this.#random, at % questions.length, (message) =>
        this.#check(watcher, message),
      );
      this.#watchers.push(watcher);
      ports.clock.after(this.#random.between(0, withinMs / 2), () => watcher.connect());
      const drop = (): void => {
        watcher.drop();
        ports.clock.after(this.#random.between(10, dropMsMax), again);
      };
      const end = ports.clock.now() + withinMs;
      const again = (): void => (ports.clock.now() < end ? drop() : undefined);
      ports.clock.after(this.#random.between(10, dropMsMax), again);
    }
  }

  /** Called with each transaction, in order; several replicas apply the same. */
  observe(commit: Commit): void {
    if (commit.version !== this.#seen + 1 || this.#options.watchers === 0) return;
    this.#seen = commit.version;
    for (const [at, question] of this.#questions.entries()) {
      const message = answerOf(question, commit);
      if (message !== null) this.#wanted[at]?.push({ version: commit.version, digest: digestOf(message) });
    }
  }

  /** The log lost acknowledged records: versions are ambiguous, including future ones. */
  excuse(): void {
    this.#isExcused = true;
  }

  /** A watcher that lags behind; null if none does. */
  whyBehind(): string | null {
    if (this.#isExcused) return null;
    for (const [at, watcher] of this.#watchers.entries()) {
      const wanted = this.#wanted[watcher.question] ?? [];
      if (watcher.told < wanted.length) {
        return `watcher ${at} is at version ${watcher.position} of ${wanted.at(-1)?.version}`;
      }
    }
    return null;
  }

  #check(watcher: Watcher, message: WatchMessage): void {
    if (this.#isExcused) return;
    const version = message.version?.index ?? 0;
    const wanted = this.#wanted[watcher.question]?.[watcher.told];
    if (wanted?.version !== version) {
      this.#options.onViolation(
        `S10: a watcher of question ${watcher.question} got version ${version} where ${wanted?.version ?? "none"} follows ${watcher.position}`,
      );
    } else if (wanted.digest !== digestOf(message)) {
      this.#options.onViolation(
        `S10: a watcher of question ${watcher.question} got other content in version ${version}`,
      );
    }
  }
}

class Watcher {
  readonly question: number;
  /** Number of messages so far, and the version of the last one. */
  told = 0;
  position = 0;
  readonly #options: WatchWorkloadOptions;
  readonly #random: SimRandom;
  readonly #onMessage: (message: WatchMessage) => void;
  #channel: RpcChannel | null = null;

  constructor(
    options: WatchWorkloadOptions,
    random: SimRandom,
    question: number,
    onMessage: (message: WatchMessage) => void,
  ) {
    this.#options = options;
    this.#random = random;
    this.question = question;
    this.#onMessage = onMessage;
  }

  connect(): void {
    const { addresses, organization, ports, trace } = this.#options;
    const identity = { nodeId: "watcher", role: "swarm-manager", organization: organization() } as const;
    const channel = ports.rpc.dial(this.#random.pick(addresses), identity);
    this.#channel = channel;
    if (this.position > 0) trace.mark("watch.resumed");
    let isFirst = true;
    channel.serverStream(WatchService.methods.Watch, requestFor(this.question, this.position), {
      onMessage: (message) => {
        if (this.#channel !== channel) return;
        const isGreeting = isFirst;
        isFirst = false;
        if (isGreeting) return;
        this.#onMessage(message);
        this.told += 1;
        this.position = message.version?.index ?? this.position;
      },
      onEnd: (error) => {
        if (this.#channel !== channel) return;
        trace.write("watcher", `at ${this.position}: ${error?.code ?? "ended"} ${error?.message ?? ""}`);
        trace.mark(`watch.ended.${error?.code ?? 0}`);
        this.drop();
      },
    });
  }

  /** Reconnects after a while. */
  drop(): void {
    const channel = this.#channel;
    if (channel === null) return;
    this.#channel = null;
    channel.close();
    this.#options.ports.clock.after(this.#random.between(1, retryMsMax), () => this.connect());
  }
}
