/** A nats-server's missing guarantees, in sentences for its operator. Probed at start, never assumed. */

interface ServerFacts {
  /** As in the greeting, such as `2.9.10`. */
  readonly version: string;
  /** Current number of the log's replicas. */
  readonly replicas: number;
  /** Why there are fewer than requested; empty if there are as many. */
  readonly notRaised?: string;
  /** Known if this process configured the server; null for an external one, since a client cannot see it. */
  readonly flushesEveryWrite: boolean | null;
}

/** Older versions lack in-memory consumers or direct gets. */
const versionMin: Version = [2, 9];
const versionWithSyncInterval: Version = [2, 10];
const versionWithCallout: Version = [2, 10];
/** Older versions stop answering after a full disk (2.9.10, tried), and are no longer maintained. */
const versionCurrent: Version = [2, 11];

type Version = readonly [major: number, minor: number];

function isAtLeast(version: string, [major, minor]: Version): boolean {
  const [, hasMajor, hasMinor] = /^v?(\d+)\.(\d+)/.exec(version) ?? [];
  if (hasMajor === undefined || hasMinor === undefined) return false;
  return Number(hasMajor) > major || (Number(hasMajor) === major && Number(hasMinor) >= minor);
}

export function isSupported(version: string): boolean {
  return isAtLeast(version, versionMin);
}

/** Whether Muster chooses it by itself; an older version runs only if there is no other, or if it is configured. */
export function isCurrent(version: string): boolean {
  return isAtLeast(version, versionCurrent);
}

export function hasSyncInterval(version: string): boolean {
  return isAtLeast(version, versionWithSyncInterval);
}

/** Whether it has the authorization callout, and ends single connections. */
export function canServeNodes(version: string): boolean {
  return isAtLeast(version, versionWithCallout);
}

export function abilities(facts: ServerFacts): readonly string[] {
  const sentences: string[] = [];
  if (!isCurrent(facts.version)) {
    sentences.push(
      `nats-server ${facts.version} is outdated: it can stop answering after a full disk, and is no longer maintained. Run 2.11 or newer ('npm run setup' installs one without root; MUSTER_NATS_SERVER selects one).`,
    );
  }
  if (!hasSyncInterval(facts.version)) {
    sentences.push(
      `nats-server ${facts.version} cannot flush every acknowledged change to disk (sync_interval needs 2.10): a power failure or a crash of the operating system can lose the last two minutes of changes. A crash of nats-server or Muster loses none.`,
    );
  } else if (facts.flushesEveryWrite !== true) {
    sentences.push(
      `nats-server ${facts.version} may not flush every acknowledged change to disk (Muster cannot read this setting): set 'sync_interval: always' in the jetstream block of its configuration.`,
    );
  }
  if (facts.replicas === 1) {
    const why = facts.notRaised ?? "";
    sentences.push(
      `The log has one replica: while its nats-server is down, nothing can change, and losing its disk loses the cluster's state${
        why === ""
          ? ""
          : ` (three were requested, and are created when a manager starts while all nats-servers run: ${why})`
      }.`,
    );
  }
  return sentences;
}
