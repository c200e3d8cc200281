/**
 * Answers from the leader's orchestration, for callers of any manager: asked directly if this manager leads, else over the bus.
 * Questions write nothing, so an unanswered one needs no clean-up.
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
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import * as subjects from "../runtime/subjects.ts";
import { busMessage } from "./bus-message.ts";
import type { Environment, Running } from "./environment.ts";

/** Questions that the leader's duties answer. Each method may throw RpcError. */
export interface LeaderKnowledge {
  explainTask(id: string): readonly Reason[];
  /** Empty when the service does not exist. */
  explainService(id: string): readonly Reason[];
  /** Empty when the volume does not exist. */
  explainVolume(id: string): readonly Reason[];
  planService(request: PlanServiceRequest): PlanServiceResponse;
  planRebalance(request: PlanRebalanceRequest): PlanRebalanceResponse;
}

/** In milliseconds: longer than the largest plan takes, shorter than a person or a caller waits (25 s). */
export const askTimeoutMs = 3_000;
/** Below NATS's default `max_payload` of 1 MiB, minus space for headers. */
const bytesMax = 1024 * 1024 - 4_096;

export type Asked =
  | { readonly kind: "answered"; readonly answer: LeaderAnswer }
  /** `reason`: why there is no answer. */
  | { readonly kind: "unanswered"; readonly reason: string; readonly wokenBy: string };

interface LeaderPort {
  /** This manager's own duties; null while it does not lead. */
  own(): LeaderKnowledge | null;
  /** Node id of the current leader as far as this manager knows; null when unknown. */
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
      message: `the question is larger than ${bytesMax} bytes`,
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
        ? unanswered(
            "no manager leads, so nothing is decided",
            "a manager that takes the lease, usually within seconds",
          )
        : unanswered(
            `leader ${leader} has not started its duties yet`,
            "the end of its bootstrap, which takes a moment",
          );
    case "timeout":
      return leader === null
        ? unanswered(
            "no manager leads, so nothing is decided",
            "a manager that takes the lease, usually within seconds",
          )
        : unanswered(
            `leader ${leader} did not answer within ${askTimeoutMs / 1_000} s`,
            "an answer from it or from another leader: try again",
          );
    case "closed":
      return unanswered(
        "this manager is disconnected from the bus and cannot ask the leader",
        "a restored connection to the bus",
      );
  }
}

/** A leader's duty: answers the questions of the other managers. */
export function answerQuestions(
  env: Pick<Environment, "bus" | "clock" | "managerId" | "telemetry">,
  knowledge: LeaderKnowledge,
): Running {
  const subscription = env.bus.subscribe(subjects.leaderAsk, (message) => {
    const asked = busMessage(env, LeaderQuestion, message);
    if (asked === null) {
      const failure = Failure.create({ code: Status.INVALID_ARGUMENT, message: "cannot decode the question" });
      message.respond(LeaderAnswer.encode(LeaderAnswer.create({ leader: env.managerId, failure })));
      return;
    }
    let data = LeaderAnswer.encode(answer(env.managerId, knowledge, asked));
    if (data.length > bytesMax) {
      const text = `the leader's answer is larger than ${bytesMax} bytes: ask the leader directly (${env.managerId})`;
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
    throw new RpcError(Status.UNIMPLEMENTED, "the leader does not support this question: it may run an older version");
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
    return unanswered("cannot decode the leader's answer", "the same version of Muster on all managers");
  }
}

/** The leader's answer, or throws its error for the caller of this manager. `of`: the requested field of the answer. */
export function demandAnswer<Name extends "planService" | "planRebalance">(
  asked: Asked,
  of: Name,
): NonNullable<LeaderAnswer[Name]> {
  if (asked.kind === "unanswered") throw new RpcError(Status.UNAVAILABLE, asked.reason);
  const { answer: given } = asked;
  if (given.failure !== null) throw new RpcError(statusOf(given.failure.code), given.failure.message);
  const wanted = given[of];
  if (wanted === null) throw new RpcError(Status.INTERNAL, `leader ${given.leader} answered a different question`);
  return wanted;
}

function statusOf(code: number): Status {
  return Object.values(Status).find((known) => known === code) ?? Status.UNKNOWN;
}
