/** Every subject on the bus: a builder and, where receivers need one, a parser. No other file writes a subject. */
import { assert } from "../lib/assert.ts";
import { isSubjectToken } from "./ids.ts";

function token(text: string): string {
  assert(isSubjectToken(text), `B1: '${text}' is a valid token of a subject`);
  return text;
}

// muster.v1.svc.ledger.propose — ProposeRequest → ProposeReply; only the leader subscribes.
export const ledgerPropose = "muster.v1.svc.ledger.propose";

// muster.v1.svc.leader.ask — LeaderQuestion → LeaderAnswer; only the leader subscribes, while it performs its duties.
export const leaderAsk = "muster.v1.svc.leader.ask";

// muster.v1.beat.ledger.leader — LeaderBeat
export const leaderBeat = "muster.v1.beat.ledger.leader";

// muster.v1.beat.manager.<managerId> — ManagerBeat
const managerBeatPrefix = "muster.v1.beat.manager.";
export const managerBeats = `${managerBeatPrefix}*`;
export function managerBeat(managerId: string): string {
  return managerBeatPrefix + token(managerId);
}
export function parseManagerBeat(subject: string): string | null {
  return parseLast(subject, managerBeatPrefix);
}

// muster.v1.svc.session.registered — SessionRegistered, to every manager
export const sessionRegistered = "muster.v1.svc.session.registered";

// muster.v1.svc.logs.announced — LogAnnouncement, to every manager
export const logsAnnounced = "muster.v1.svc.logs.announced";

// muster.v1.cmd.manager.<managerId>.logs — LogHolding, to the home of a subscription
const managerCommandPrefix = "muster.v1.cmd.manager.";
export function logsHeld(managerId: string): string {
  return `${managerCommandPrefix}${token(managerId)}.logs`;
}
export function parseLogsHeld(subject: string): string | null {
  return parseBetween(subject, managerCommandPrefix, ".logs");
}

// muster.v1.out.manager.<managerId>.logs — LogDelivery → LogDeliveryAnswer, to the home of a subscription
const managerOutputPrefix = "muster.v1.out.manager.";
export function logsDelivered(managerId: string): string {
  return `${managerOutputPrefix}${token(managerId)}.logs`;
}
export function parseLogsDelivered(subject: string): string | null {
  return parseBetween(subject, managerOutputPrefix, ".logs");
}

// muster.v1.cmd.node.<nodeId>.task — NodeQuestion → NodeQuestionReply, to the manager at which the node listens
const nodeCommandPrefix = "muster.v1.cmd.node.";
export function taskQuestion(nodeId: string): string {
  return `${nodeCommandPrefix}${token(nodeId)}.task`;
}
export function parseTaskQuestion(subject: string): string | null {
  return parseBetween(subject, nodeCommandPrefix, ".task");
}

// muster.v1.out.manager.<managerId>.task — TaskAnswerDelivery → TaskAnswerDeliveryReply, to the asking manager
export function taskAnswered(managerId: string): string {
  return `${managerOutputPrefix}${token(managerId)}.task`;
}
export function parseTaskAnswered(subject: string): string | null {
  return parseBetween(subject, managerOutputPrefix, ".task");
}

// muster.v1.cmd.manager.<managerId>.feed — FeedLease → FeedLeaseReply, to the manager whose feed is wanted
export function feedLeased(managerId: string): string {
  return `${managerCommandPrefix}${token(managerId)}.feed`;
}
export function parseFeedLeased(subject: string): string | null {
  return parseBetween(subject, managerCommandPrefix, ".feed");
}

// muster.v1.cmd.manager.<managerId>.feed-taken — FeedTaken, to the manager that publishes
export function feedTaken(managerId: string): string {
  return `${managerCommandPrefix}${token(managerId)}.feed-taken`;
}
export function parseFeedTaken(subject: string): string | null {
  return parseBetween(subject, managerCommandPrefix, ".feed-taken");
}

// muster.v1.cmd.manager.<managerId>.recent — RecentQuestion → RecentReply, to the manager that reads the recording
export function recentRead(managerId: string): string {
  return `${managerCommandPrefix}${token(managerId)}.recent`;
}
export function parseRecentRead(subject: string): string | null {
  return parseBetween(subject, managerCommandPrefix, ".recent");
}

// muster.v1.inspect.<process>.<actor> — FeedPublication, to every manager with a listener
const feedPrefix = "muster.v1.inspect.";
/** Token of a message about several actors, or none. */
const severalActors = "several";
export const feedPublications = `${feedPrefix}*.*`;
/** `actor`: null for a message about several or none. Its id may have characters that subjects do not allow; they become `_`. */
export function feedPublished(process: string, actor: string | null): string {
  const last = actor === null || actor === "" ? severalActors : actor.replaceAll(/[^A-Za-z0-9_-]/g, "_");
  return `${feedPrefix}${token(process)}.${token(last)}`;
}
/** The process. */
export function parseFeedPublished(subject: string): string | null {
  const [process = "", actor = "", ...rest] = subject.startsWith(feedPrefix)
    ? subject.slice(feedPrefix.length).split(".")
    : [];
  return rest.length === 0 && isSubjectToken(process) && isSubjectToken(actor) ? process : null;
}

// muster.v1.cmd.life.<life>.prove — LifeQuestion → LifeAnswer, to one run of one manager process
const lifeCommandPrefix = "muster.v1.cmd.life.";
export function lifeProof(life: string): string {
  return `${lifeCommandPrefix}${token(life)}.prove`;
}
function parseLifeProof(subject: string): string | null {
  return parseBetween(subject, lifeCommandPrefix, ".prove");
}

/** A subject on which managers exchange messages, all of them sealed (`runtime/store/sealed-bus.ts`). */
interface BusSubject {
  /** Name in metrics, which must not contain ids. */
  readonly kind: string;
  /** The subject, with the id if it has one. */
  build(id: string): string;
  /** Whether `subject` is this subject, or the wildcard over its ids. */
  is(subject: string): boolean;
}

function single(kind: string, subject: string): BusSubject {
  return { kind, build: () => subject, is: (other) => other === subject };
}

function each(kind: string, build: (id: string) => string, parse: (subject: string) => string | null): BusSubject {
  return { kind, build, is: (subject) => parse(subject) !== null };
}

/** B2: every subject of the bus; other subjects cannot be subscribed to. */
export const busSubjects: readonly BusSubject[] = [
  single("ledger.propose", ledgerPropose),
  single("leader.ask", leaderAsk),
  single("leader.beat", leaderBeat),
  { ...each("manager.beat", managerBeat, parseManagerBeat), is: (subject) => subject.startsWith(managerBeatPrefix) },
  single("session.registered", sessionRegistered),
  single("logs.announced", logsAnnounced),
  each("logs.held", logsHeld, parseLogsHeld),
  each("logs.delivered", logsDelivered, parseLogsDelivered),
  each("task.question", taskQuestion, parseTaskQuestion),
  each("task.answered", taskAnswered, parseTaskAnswered),
  each("feed.leased", feedLeased, parseFeedLeased),
  each("feed.taken", feedTaken, parseFeedTaken),
  each("recent.read", recentRead, parseRecentRead),
  {
    ...each("feed.published", (process) => feedPublished(process, null), parseFeedPublished),
    is: (subject) => subject.startsWith(feedPrefix),
  },
  each("life.prove", lifeProof, parseLifeProof),
];

/** Null if it is not a subject of the bus. */
export function subjectKind(subject: string): string | null {
  return busSubjects.find((each) => each.is(subject))?.kind ?? null;
}

// muster.v1.log — LogRecord, in the log stream only
export const log = "muster.v1.log";

// muster.v1.node.<nodeId>.up.<managerId>.<link> — LinkFrame, from a node to one manager
const nodePrefix = "muster.v1.node.";
export function nodeFramesFor(managerId: string): string {
  return `${nodePrefix}*.up.${token(managerId)}.*`;
}
export function nodeFrame(nodeId: string, managerId: string, link: string): string {
  return `${nodePrefix}${token(nodeId)}.up.${token(managerId)}.${token(link)}`;
}
export function parseNodeFrame(subject: string): { readonly nodeId: string; readonly link: string } | null {
  const from = parseUp(subject, nodePrefix);
  return from === null ? null : { nodeId: from.id, link: from.link };
}

// muster.v1.node.<nodeId>.down.<link> — LinkFrame, from a manager to the node
export function frameForNode(nodeId: string, link: string): string {
  return `${nodePrefix}${token(nodeId)}.down.${token(link)}`;
}

/** The subjects that a node may publish to and subscribe to. */
export function nodeSubjects(nodeId: string): { readonly sends: string; readonly receives: string } {
  return { sends: `${nodePrefix}${token(nodeId)}.up.*.*`, receives: `${nodePrefix}${token(nodeId)}.down.*` };
}

// muster.v1.site.<site>.up.<managerId>.<link> — LinkFrame with sealed bytes, from a node behind a site's leaf node to one manager
const sitePrefix = "muster.v1.site.";
/** In the place of a manager's id: every manager that the site's leaf node has reached. */
const everyManager = "any";
export function siteFramesFor(site: string, managerId: string): string {
  return `${sitePrefix}${token(site)}.up.${token(managerId)}.*`;
}
export function siteFrame(site: string, managerId: string, link: string): string {
  return `${sitePrefix}${token(site)}.up.${token(managerId)}.${token(link)}`;
}
export function siteFramesForAny(site: string): string {
  return siteFramesFor(site, everyManager);
}
export function siteFrameForAny(site: string, link: string): string {
  return siteFrame(site, everyManager, link);
}
export function parseSiteFrame(subject: string): { readonly site: string; readonly link: string } | null {
  const from = parseUp(subject, sitePrefix);
  return from === null ? null : { site: from.id, link: from.link };
}

// muster.v1.site.<site>.down.<link> — LinkFrame with sealed bytes, from a manager to the node
export function frameForSite(site: string, link: string): string {
  return `${sitePrefix}${token(site)}.down.${token(link)}`;
}

/** The subjects on which a site's leaf node may pass messages to its manager, and receive them. */
export function siteSubjects(site: string): { readonly sends: string; readonly receives: string } {
  return { sends: `${sitePrefix}${token(site)}.up.*.*`, receives: `${sitePrefix}${token(site)}.down.*` };
}

function parseUp(subject: string, prefix: string): { readonly id: string; readonly link: string } | null {
  const [id = "", up, managerId = "", link = "", ...rest] = subject.startsWith(prefix)
    ? subject.slice(prefix.length).split(".")
    : [];
  return up === "up" && rest.length === 0 && [id, managerId, link].every(isSubjectToken) ? { id, link } : null;
}

function parseBetween(subject: string, prefix: string, suffix: string): string | null {
  return subject.endsWith(suffix) ? parseLast(subject.slice(0, -suffix.length), prefix) : null;
}

function parseLast(subject: string, prefix: string): string | null {
  const last = subject.startsWith(prefix) ? subject.slice(prefix.length) : "";
  return isSubjectToken(last) ? last : null;
}
