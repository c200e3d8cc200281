/** What a nats-server cannot promise, in sentences for whoever runs it. Probed at start, never assumed. */

export interface ServerFacts {
  /** As the server greets, such as `2.9.10`. */
  readonly version: string;
  /** Of the log, as it stands. */
  readonly replicas: number;
  /** Why there are no more although more were asked for; empty when none were. */
  readonly notRaised?: string;
  /** True or false when this process configured the server itself; null when another did, since a client cannot see it. */
  readonly flushesEveryWrite: boolean | null;
}

/** Below this there is no in-memory consumer and no direct get. */
const versionMin: Version = [2, 9];
const versionWithSyncInterval: Version = [2, 10];
/** Older ones answer no more after a full disk (2.9.10, tried), and are maintained no longer. */
const versionCurrent: Version = [2, 11];

type Version = readonly [major: number, minor: number];

export function isAtLeast(version: string, [major, minor]: Version): boolean {
  const [, hasMajor, hasMinor] = /^v?(\d+)\.(\d+)/.exec(version) ?? [];
  if (hasMajor === undefined || hasMinor === undefined) return false;
  return Number(hasMajor) > major || (Number(hasMajor) === major && Number(hasMinor) >= minor);
}

export function isSupported(version: string): boolean {
  return isAtLeast(version, versionMin);
}

/** Whether it is one that Muster chooses by itself; older ones are run when there is no other, or when they are named. */
export function isCurrent(version: string): boolean {
  return isAtLeast(version, versionCurrent);
}

export function hasSyncInterval(version: string): boolean {
  return isAtLeast(version, versionWithSyncInterval);
}

export function abilities(facts: ServerFacts): readonly string[] {
  const sentences: string[] = [];
  if (!isCurrent(facts.version)) {
    sentences.push(
      `nats-server ${facts.version} is old: a disk that fills up can leave it running but deaf, and it is repaired no more. Run 2.11 or newer ('npm run setup' brings one without root; MUSTER_NATS_SERVER names one).`,
    );
  }
  if (!hasSyncInterval(facts.version)) {
    sentences.push(
      `nats-server ${facts.version} cannot write every acknowledged change through to the disk (sync_interval came with 2.10): a power failure or a crash of the operating system can lose the last two minutes of them; a crash of nats-server or Muster loses none.`,
    );
  } else if (facts.flushesEveryWrite !== true) {
    sentences.push(
      `Whether nats-server ${facts.version} writes every acknowledged change through to the disk cannot be seen from here: set 'sync_interval: always' in the jetstream block of its configuration.`,
    );
  }
  if (facts.replicas === 1) {
    const why = facts.notRaised ?? "";
    sentences.push(
      `The log has one replica: while its nats-server is down nothing can change, and losing its disk loses the cluster's state${
        why === "" ? "" : ` (three were asked for, and come when a manager starts while all nats-servers run: ${why})`
      }.`,
    );
  }
  return sentences;
}
