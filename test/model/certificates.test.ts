// Certificates: of nodes and managers, the leader's work for them, and the rotation of their root.
import test from "ava";
import {
  agentCertificateMachine,
  type AgentCertificateEvent,
  type AgentCertificateInput,
} from "../../machines/agent/certificate.machine.ts";
import { certificateMachine, type CertificateEvent } from "../../machines/certificates/certificate.machine.ts";
import {
  managerCertificateMachine,
  type ManagerCertificateEvent,
} from "../../machines/certificates/manager-certificate.machine.ts";
import { rootRotationMachine, type RootRotationEvent } from "../../machines/certificates/root-rotation.machine.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

const both = [true, false];

interface CertificateContext {
  readonly role: string;
  readonly wantedRole: string;
  readonly isForcedAgain: boolean;
  readonly failures: number;
}

/** Beginnings of the events that answer an effect; the clock answers at any moment. */
const answers: Readonly<Record<string, readonly string[]>> = {
  fetchRoot: ["root.fetched", "root.refused"],
  requestCertificate: ["request."],
  pollStatus: ["poll.", "certificate.issued"],
  installCertificate: ["certificate.installed", "certificate.refused"],
};
const isAnswerTo = (request: string, type: string): boolean =>
  answers[request]?.some((beginning) => type.startsWith(beginning)) ?? false;

test("a node joins as one node, never gives up its renewal, and requests another certificate whenever it is told to", async (t) => {
  const roles = ["swarm-worker", "swarm-manager"];
  const certificate = { nodeId: "n1", at: 1_000, renewAt: 5_000, expiresAt: 9_000 };
  const inputs: readonly AgentCertificateInput[] = [
    { kind: "joining" },
    { kind: "holding", ...certificate, role: "swarm-worker" },
    { kind: "failed", reason: "no key" },
  ];
  const events: readonly AgentCertificateEvent[] = [
    { type: "root.fetched" },
    { type: "request.accepted", nodeId: "n1" },
    { type: "certificate.issued" },
    { type: "poll.expired" },
    { type: "poll.failed", reason: "not yet" },
    { type: "poll.superseded", reason: "older" },
    { type: "poll.unknown", reason: "no node" },
    { type: "renewal.forced" },
    { type: "clock.read", at: 1_000 },
    { type: "clock.read", at: 5_000 },
    { type: "root.offered", rootPem: "R2" },
    ...both.flatMap((definite): readonly AgentCertificateEvent[] => [
      { type: "root.refused", reason: "no", definite },
      { type: "request.refused", reason: "no", definite },
      { type: "certificate.refused", reason: "no", definite },
    ]),
    ...roles.flatMap((role): readonly AgentCertificateEvent[] => [
      { type: "role.wanted", role },
      { type: "certificate.installed", ...certificate, role },
    ]),
  ];
  await walkChart(t, {
    machine: agentCertificateMachine,
    inputs,
    events,
    matters: ({ failures, isForcedAgain, role, wantedRole }: CertificateContext) => [
      Math.min(failures, 5),
      isForcedAgain,
      role,
      wantedRole,
    ],
    mayCome: ({ memory }, { type }) =>
      isAnswerTo(memory.request, type) || !Object.keys(answers).some((request) => isAnswerTo(request, type)),
    memory: {
      /** The effect that is not answered yet. */
      request: "",
      isRootVerified: false,
      /** The manager has accepted this join. */
      isJoined: false,
      /** Told to renew, without a request since. */
      isOwed: false,
      /** Polls without a certificate since the last request, up to three. */
      misses: 0,
    },
    check: (memory, step, claim) => {
      const { asked, context, event, from } = step;
      const { role, wantedRole } = context as CertificateContext;
      const isHolding = role !== "";
      const type = event?.type ?? "";
      const requests = asked.map((each) => each.type).filter((each) => each in answers);
      const isRequesting = requests.includes("requestCertificate");
      const isRootVerified = memory.isRootVerified || type === "root.fetched";
      claim(
        "C1",
        !isRequesting || isHolding || isRootVerified,
        "a certificate is requested from an unverified manager",
      );
      claim("C1", !isAsked(asked, "considerRoot") || isHolding, "a root is considered that nothing vouches for");
      claim(
        "C2",
        isAsked(asked, "announceIdentity") === (type === "certificate.installed"),
        "announced, but not on disk",
      );
      claim("C3", !isHolding || (!isIn(step, "failed") && !isAsked(asked, "announceFailure")), "a renewal is given up");
      const isRefused = type === "request.refused" || type === "certificate.refused";
      claim("C3", !(isHolding && isRefused) || isIn(step, "waiting-to-renew") || isRequesting, "a renewal stops");
      claim("C3", !isDue(event, "renewalBackoff") || isRequesting, "a renewal is not tried again");
      claim("C4", !isAsked(asked, "installCertificate") || type === "certificate.issued", "another answer is accepted");
      claim("C4", memory.request !== "pollStatus" || !isRequesting, "a poll outlives the request that it is about");
      const isOwed = isHolding && (memory.isOwed || type === "renewal.forced") && !isRequesting;
      const rests = isIn(step, "valid");
      claim("C5", !rests || !isOwed, "a request to renew is forgotten");
      claim("C5", !rests || wantedRole === "" || wantedRole === role, "a wanted role is forgotten");
      const isSure = memory.misses >= 2;
      const isSuperseded = type === "poll.superseded" && isHolding && isSure;
      claim("C6", !isSuperseded || isIn(step, "waiting-to-renew"), "it polls forever for a superseded request");
      const isGone = type === "poll.unknown" && isSure;
      const isJoined = (memory.isJoined || type === "request.accepted") && !isGone;
      claim("C7", !isRequesting || isHolding || !isJoined, "a join creates another node");
      const isWaiting = !isHolding && isJoined && !isIn(step, "failed");
      const isAtIt = ["polling", "waiting-to-poll", "installing"].some((state) => isIn(step, state));
      claim("C7", !isWaiting || isAtIt, "a join stops waiting for its certificate");
      const isMissed = ["poll.failed", "poll.superseded", "poll.unknown"].includes(type) || isRefused;
      const misses = isRequesting || type === "request.accepted" ? 0 : memory.misses + (isMissed ? 1 : 0);
      const isAnswered = event !== null && isAnswerTo(memory.request, type);
      return {
        request: requests[0] ?? (isAnswered ? "" : memory.request),
        isRootVerified,
        isJoined: isJoined && !isHolding,
        isOwed,
        misses: from === null ? 0 : Math.min(misses, 3),
      };
    },
  });
});

test("a node's request is signed as it is in the store, and only a refusal ends it without a certificate", async (t) => {
  const events: readonly CertificateEvent[] = [
    { type: "csr.received" },
    { type: "signing.started" },
    { type: "certificate.stored" },
    { type: "certificate.superseded" },
    { type: "csr.refused", reason: "malformed" },
    { type: "refusal.stored" },
    { type: "write.failed", reason: "no leader" },
    { type: "node.removed" },
  ];
  await walkChart(t, {
    machine: certificateMachine,
    inputs: both.map((isRotating) => ({ nodeId: "n1", isRotating })),
    events,
    matters: () => null,
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const type = event?.type ?? "";
      const wasWriting = isIn(from, "signing") || isIn(from, "refusing");
      const signs = isAsked(asked, "requestSignature");
      claim("C1", !(wasWriting && type === "certificate.superseded") || signs, "a newer request is not signed");
      claim("C1", !(isIn(from, "rotating") && type === "csr.received") || signs, "the renewal is not signed");
      claim("C1", !isIn(step, "issued") || type === "certificate.stored", "it ends without a certificate in the log");
      const refusals = paramsOf<{ reason: string }>(asked, "storeRefusal");
      claim("C2", refusals.length === 0 || type === "csr.refused", "a request is refused that could be signed");
      claim(
        "C2",
        !(type === "csr.refused" && isIn(from, "signing")) || refusals[0]?.reason === "malformed",
        "no reason",
      );
      claim("C2", !isIn(step, "failed") || type === "refusal.stored", "it fails without a refusal in the log");
      claim("C2", !(wasWriting && type === "write.failed") || isIn(step, "waiting"), "a failed write ends it");
      claim("C2", !isDue(event, "retryDelay") || signs, "a failed write is not tried again");
      return null;
    },
    ends: true,
  });
});

test("a manager checks its certificate again after every doubt, and keeps the old one while it cannot get another", async (t) => {
  const events: readonly ManagerCertificateEvent[] = [
    { type: "certificate.obtained", renewInMs: 5_000 },
    { type: "certificate.failed", reason: "no leader" },
    { type: "certificate.doubted" },
  ];
  await walkChart(t, {
    machine: managerCertificateMachine,
    inputs: [undefined],
    events,
    matters: ({ isDoubted }: { readonly isDoubted: boolean }) => isDoubted,
    mayCome: ({ states }, { type }) => type === "certificate.doubted" || states.includes("obtaining"),
    /** Doubted since the certificate was last checked. */
    memory: { isDoubted: false },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const checks = isAsked(asked, "obtainCertificate");
      const isDoubted = (memory.isDoubted || event?.type === "certificate.doubted") && !checks;
      const isFailed = event?.type === "certificate.failed";
      claim("M1", !isFailed || checks || isIn(step, "retrying"), "a failed renewal ends it");
      claim("M1", !isDue(event, "retry") || checks, "a failed renewal is not tried again");
      claim("M1", !isDue(event, "due") || checks, "it is not renewed when due");
      const wasIdle = isIn(from, "held") || isIn(from, "retrying");
      claim("M6", !(event?.type === "certificate.doubted" && wasIdle) || checks, "it is not checked at once");
      claim("M2", isIn(step, "obtaining") || !isDoubted, "a doubt during the renewal is forgotten");
      return { isDoubted };
    },
  });
});

test("the root changes once all nodes have renewed, and a new leader goes on where the last one stopped", async (t) => {
  const events: readonly RootRotationEvent[] = [
    { type: "rotation.wanted" },
    { type: "rotation.over" },
    { type: "nodes.renewed" },
    { type: "batch.notified", notified: 30 },
    { type: "write.failed", reason: "no leader" },
  ];
  await walkChart(t, {
    machine: rootRotationMachine,
    inputs: both.map((isWanted) => ({ isWanted })),
    events,
    matters: () => null,
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const switches = isAsked(asked, "switchRoot");
      const notifies = isAsked(asked, "notifyNodes");
      claim("R1", !switches || event?.type === "nodes.renewed", "the root changes before all nodes have renewed");
      claim("R1", !switches || !isIn(from, "idle"), "the root changes outside a rotation");
      const isPaced = from === null || event?.type === "rotation.wanted" || isDue(event, "pause");
      claim("R2", !notifies || isPaced, "a batch follows another without a pause");
      const isStarted = from === null && (step.context as { readonly isWanted: boolean }).isWanted;
      claim("R3", from !== null || notifies === isStarted, "a new leader does not go on with the rotation");
      const isFailed = event?.type === "write.failed" && (isIn(from, "notifying") || isIn(from, "switching"));
      claim("R3", !isFailed || isIn(step, "pausing"), "a failed write ends the rotation");
      claim("R3", !isDue(event, "pause") || notifies, "no further batch follows");
      return null;
    },
  });
});
