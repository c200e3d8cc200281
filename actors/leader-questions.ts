/**
 * What only the leader's orchestration knows, for callers of any manager: asked straight where this manager leads, else
 * over the bus of whoever does. Nothing is written by a question, so one without an answer is simply not answered.
 */
import {
  Failure,
  LeaderAnswer,
  LeaderQuestion,
  WhyResponse,
  type PlanRebalanceRequest,
  type PlanRebalanceResponse,
  type PlanServiceRequest,
  type PlanServiceResponse,
  type Reason,
} from "../proto/gen/messages.ts";
import { RpcError, Status } from "../runtime/rpc.ts";
import * as subjects from "../runtime/subjects.ts";
import { busMessage } from "./bus-message.ts";
import type { Environment, Running } from "./environment.ts";

/** What the leader's duties can tell. Each may throw RpcError. */
export interface LeaderKnowledge {
  explainTask(id: string): readonly Reason[];
  /** Empty when there is no such service. */
  explainService(id: string): readonly Reason[];
  /** Empty when there is no such volume. */
  explainVolume(id: string): readonly Reason[];
  planService(request: PlanServiceRequest): PlanServiceResponse;
  planRebalance(request: PlanRebalanceRequest): PlanRebalanceResponse;
}

/** In milliseconds: longer than the largest plan takes, shorter than a person waits, or a caller (25 s). */
export const askTimeoutMs = 3_000;
/** Below NATS's default `max_payload` of 1 MiB, with room for headers. */
const bytesMax = 1024 * 1024 - 4_096;

export type Asked =
  | { readonly kind: "answered"; readonly answer: LeaderAnswer }
  /** `reason`: why there is no answer. */
  | { readonly kind: "unanswered"; readonly reason: string; readonly wokenBy: string };

export interface LeaderPort {
  /** What this manager's own duties know; null while it does not lead. */
  own(): LeaderKnowledge | null;
  /** Node id of the present leader as far as this manager has heard; null: of none. */
  leader(): string | null;
}

/** Never rejects. */
export async function askLeader(
  env: Pick<Environment, "bus" | "managerId">,
  port: LeaderPort,
  question: Partial<LeaderQuestion>,
): Promise<Asked> {
  const asked = LeaderQuestion.create({ asker: env.managerId, ...question });
  const own = port.own();
  if (own !== null) return { kind: "answered", answer: answer(env.managerId, own, asked) };
  const data = LeaderQuestion.encode(asked);
  if (data.length > bytesMax) {
    const failure = Failure.create({
      code: Status.RESOURCE_EXHAUSTED,
      message: `the question has more than ${bytesMax} bytes`,
    });
    return { kind: "answered", answer: LeaderAnswer.create({ failure }) };
  }
  const outcome = await env.bus.request(subjects.leaderAsk, data, { timeoutMs: askTimeoutMs });
  const leader = port.leader();
  switch (outcome.kind) {
    case "reply":
      return decodeAnswer(outcome.data);
    case "no-responders":
      return leader === null
        ? unanswered("no manager leads, so nobody decides", "a manager that takes the lease, which is seconds away")
        : unanswered(
            `leader ${leader} has not begun its duties yet`,
            "the end of its bootstrap, which follows at once",
          );
    case "timeout":
      return leader === null
        ? unanswered("no manager leads, so nobody decides", "a manager that takes the lease, which is seconds away")
        : unanswered(
            `leader ${leader} has not answered within ${askTimeoutMs / 1_000} s`,
            "its answer, or another leader's: ask again",
          );
    case "closed":
      return unanswered("this manager has no link to the bus, so it cannot ask the leader", "the return of the link");
  }
}

/** A leader's duty: answers what the other managers ask. */
export function answerQuestions(
  env: Pick<Environment, "bus" | "clock" | "managerId" | "telemetry">,
  knowledge: LeaderKnowledge,
): Running {
  const subscription = env.bus.subscribe(subjects.leaderAsk, (message) => {
    const asked = busMessage(env, LeaderQuestion, message);
    if (asked === null) {
      const failure = Failure.create({ code: Status.INVALID_ARGUMENT, message: "the question cannot be decoded" });
      message.respond(LeaderAnswer.encode(LeaderAnswer.create({ leader: env.managerId, failure })));
      return;
    }
    let data = LeaderAnswer.encode(answer(env.managerId, knowledge, asked));
    if (data.length > bytesMax) {
      const text = `the leader's answer has more than ${bytesMax} bytes: ask the leader itself (${env.managerId})`;
      const failure = Failure.create({ code: Status.RESOURCE_EXHAUSTED, message: text });
      data = LeaderAnswer.encode(LeaderAnswer.create({ leader: env.managerId, failure }));
    }
    message.respond(data);
  });
  return { stop: () => subscription.unsubscribe() };
}

function reasonsFor(knowledge: LeaderKnowledge, kind: string, id: string): readonly Reason[] {
  switch (kind) {
    case "task":
      return knowledge.explainTask(id);
    case "volume":
      return knowledge.explainVolume(id);
    default:
      return knowledge.explainService(id);
  }
}

function answer(leader: string, knowledge: LeaderKnowledge, question: LeaderQuestion): LeaderAnswer {
  try {
    if (question.why !== null) {
      const [kind = "", id = ""] = question.why.subject.split("/");
      const reasons = reasonsFor(knowledge, kind, id);
      return LeaderAnswer.create({ leader, why: WhyResponse.create({ kind, id, reasons }) });
    }
    if (question.planService !== null) {
      return LeaderAnswer.create({ leader, planService: knowledge.planService(question.planService) });
    }
    if (question.planRebalance !== null) {
      return LeaderAnswer.create({ leader, planRebalance: knowledge.planRebalance(question.planRebalance) });
    }
    throw new RpcError(Status.UNIMPLEMENTED, "the leader does not know this question: it may be of an older version");
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return LeaderAnswer.create({ leader, failure: Failure.create({ code: error.code, message: error.message }) });
  }
}

function unanswered(reason: string, wokenBy: string): Asked {
  return { kind: "unanswered", reason, wokenBy };
}

function decodeAnswer(data: Uint8Array): Asked {
  try {
    return { kind: "answered", answer: LeaderAnswer.decode(data) };
  } catch {
    return unanswered("the leader's answer cannot be decoded", "the same version of Muster on all managers");
  }
}

/** What the leader said, or the error that the caller of this manager gets. `of`: the field of the answer that was asked for. */
export function demandAnswer<Name extends "planService" | "planRebalance">(
  asked: Asked,
  of: Name,
): NonNullable<LeaderAnswer[Name]> {
  if (asked.kind === "unanswered") throw new RpcError(Status.UNAVAILABLE, asked.reason);
  const { answer: given } = asked;
  if (given.failure !== null) throw new RpcError(statusOf(given.failure.code), given.failure.message);
  const wanted = given[of];
  if (wanted === null) throw new RpcError(Status.INTERNAL, `leader ${given.leader} answered something else`);
  return wanted;
}

function statusOf(code: number): Status {
  return Object.values(Status).find((known) => known === code) ?? Status.UNKNOWN;
}
