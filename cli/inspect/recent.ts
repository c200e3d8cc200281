/** The last steps of an actor, from the recording that its process keeps of its last minutes. */
import { ActorSelection, InspectionService, RecentActorsRequest, type ActorStep } from "../../proto/gen/messages.ts";
import { Status, type RpcChannel, type RpcError } from "../../runtime/ports/rpc.ts";

/** Milliseconds; an operator waits for them. */
const answerMs = 3_000;
/** Newest steps that are kept. */
export const stepsMax = 100;

interface Recent {
  /** Oldest first. */
  readonly steps: readonly ActorStep[];
  /** Why steps are missing; empty: none is. */
  readonly missing: string;
}

function reasonOf(error: RpcError): string {
  if (error.code === Status.UNIMPLEMENTED) return "the manager keeps no recording";
  return error.message;
}

/** Never rejects: the state of the actor is worth showing without its past. */
export function recentSteps(channel: RpcChannel, process: string, actor: string): Promise<Recent> {
  const { promise, resolve } = Promise.withResolvers<Recent>();
  const steps: ActorStep[] = [];
  const missing: string[] = [];
  const end = (reason: string): void => {
    clearTimeout(late);
    stream.cancel();
    resolve({ steps, missing: [...missing, ...(reason === "" ? [] : [reason])].join("; ") });
  };
  const selection = ActorSelection.create({ processes: [process], actors: [actor] });
  const stream = channel.serverStream(InspectionService.methods.Recent, RecentActorsRequest.create({ selection }), {
    onMessage({ feed, end: last }) {
      if (feed?.process === process)
        for (const step of feed.steps) {
          if (step.actor !== actor) continue;
          steps.push(step);
          if (steps.length > stepsMax) steps.shift();
        }
      if (last !== null) missing.push(...last.missing);
    },
    onEnd: (error) => end(error === null ? "" : reasonOf(error)),
  });
  const late = setTimeout(() => end(`no answer within ${answerMs / 1_000} s`), answerMs);
  return promise;
}

/** The steps of both, each once, oldest first: those that were recorded, and those that arrived since. */
export function joinedSteps(recorded: readonly ActorStep[], live: readonly ActorStep[]): readonly ActorStep[] {
  const [first] = live;
  // Times as well as numbers: an actor that is started again with the same id counts from 1 again.
  const before =
    first === undefined
      ? recorded
      : recorded.filter(({ atMs, number }) => atMs < first.atMs || (atMs === first.atMs && number < first.number));
  return [...before, ...live].slice(-stepsMax);
}
