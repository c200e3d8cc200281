/**
 * Lets the empty streams of a new NATS begin where those of another ended, so that neither versions nor epochs are used twice.
 * A purge up to a sequence beyond the end moves the end there. Some servers (2.9) notice that only when they start again, so the
 * caller restarts the server before anything is written.
 */
import { SystemRandom } from "../system/random.ts";
import type { NatsOptions } from "./connection.ts";
import { NatsProblem } from "./errors.ts";
import { callJetStream } from "./jetstream.ts";
import { Link } from "./link.ts";
import { leaseStream, logStream, streamBounds } from "./streams.ts";

const callTimeoutMs = 10_000;
const firstConnectMs = 10_000;

/**
 * The streams must exist. `log`: the last sequence that does not exist any more; `leases`: the greatest revision that a lease ever
 * had. Throws NatsProblem, also when the log has a record.
 */
export function beginStreams(
  options: NatsOptions,
  { leases, log }: { readonly log: number; readonly leases: number },
): Promise<void> {
  return using(options, async (link) => {
    const bounds = await streamBounds(link, logStream, callTimeoutMs);
    if (bounds === null) throw new NatsProblem("unavailable", "the log does not answer");
    if (bounds.last > 0) throw new NatsProblem("unusable", "this NATS already has a log");
    await begin(link, leaseStream, leases);
    await begin(link, logStream, log);
  });
}

/** The same for the leases alone, beside a log with records. Throws NatsProblem. */
export function beginLeases(options: NatsOptions, leases: number): Promise<void> {
  return using(options, (link) => begin(link, leaseStream, leases));
}

async function using(options: NatsOptions, work: (link: Link) => Promise<void>): Promise<void> {
  const random = (options.random ?? new SystemRandom()).fork("nats-begin");
  const link = await Link.open({ firstConnectMs, ...options, random });
  try {
    await work(link);
  } finally {
    link.close();
  }
}

async function begin(link: Link, stream: string, last: number): Promise<void> {
  // A purge of nothing is refused.
  if (last === 0) return;
  const purged = await callJetStream(link, `STREAM.PURGE.${stream}`, { seq: last + 1 }, callTimeoutMs);
  if (purged.kind !== "ok") throw new NatsProblem(purged.kind, `cannot begin the stream ${stream}: ${purged.reason}`);
}
