/**
 * Clients that read the output of services, at any manager, while nodes and managers fail.
 *
 * O1: the lines of each task arrive in order and at most once, whatever fails.
 * O2: lines are missing only with a report to the reader, or before the first line that it got.
 * O3: a reader that does not follow gets an end: with all lines, with a report of missing lines, or a broken connection. An end
 *     without an error follows no such report.
 * O4: a node that is not available is reported once for each absence, and again only after it was lost again.
 */
import {
  ControlService,
  ListServicesRequest,
  LogSelector,
  LogsService,
  LogSubscriptionOptions,
  SubscribeLogsRequest,
  type SubscribeLogsMessage,
} from "../../proto/gen/messages.ts";
import { Status, type RpcChannel, type RpcError } from "../../runtime/ports/rpc.ts";
import { Operator, type OperatorOptions } from "./operator.ts";

interface LogWorkloadOptions extends OperatorOptions {
  /** An invariant is violated. */
  readonly onWrong: (claim: string) => void;
}

const followMsMax = 15_000;

export class LogWorkload extends Operator<LogWorkloadOptions> {
  readonly #open = new Set<string>();

  constructor(options: LogWorkloadOptions) {
    super(options, "workload.logs", { isFirstAtOnce: false });
  }

  whyOpen(): string {
    return [...this.#open].join("; ");
  }

  protected async operate(): Promise<void> {
    const name = this.newName("reader ");
    const { addresses, identity, ports } = this.options;
    const list = ListServicesRequest.create();
    const { services } = await this.call(ControlService.methods.ListServices, list, "list services to read");
    if (services.length === 0) return;
    const follow = this.random.chance(0.6);
    const options = LogSubscriptionOptions.create({ follow, tail: this.random.pick([0, 0, -1, -4]) });
    const serviceIds = [this.random.pick(services).id];
    const address = this.random.pick(addresses);
    const followMs = this.random.between(500, followMsMax);
    const channel = await ports.rpc.connect(address, identity);
    this.#open.add(`${name} of ${serviceIds.join()} at ${address}`);
    try {
      const request = SubscribeLogsRequest.create({ selector: LogSelector.create({ serviceIds }), options });
      await this.#subscribe(name, channel, request, follow ? followMs : null);
    } finally {
      this.#open.delete(`${name} of ${serviceIds.join()} at ${address}`);
      channel.close();
    }
  }

  /** `followMs`: how long to follow; null: until it ends. */
  #subscribe(name: string, channel: RpcChannel, request: SubscribeLogsRequest, followMs: number | null): Promise<void> {
    const { ports, trace } = this.options;
    const reading = new Reading();
    return new Promise((resolve) => {
      const stream = channel.serverStream(LogsService.methods.SubscribeLogs, request, {
        onMessage: (message) => {
          const wrong = reading.take(message);
          if (wrong !== null) this.options.onWrong(`${wrong} (${name}, follow ${followMs !== null})`);
        },
        onEnd: (error) => {
          if (error === null && reading.isIncomplete)
            this.options.onWrong(`O3: ${name} ends as if complete after a report of missing lines`);
          trace.write("client", `${name} ends after ${reading.lines} lines: ${error?.message ?? "OK"}`);
          trace.mark(endMark(error));
          resolve();
        },
      });
      if (followMs === null) return;
      ports.clock.after(followMs, () => {
        stream.cancel();
        trace.write("client", `${name} leaves after ${reading.lines} lines`);
        if (reading.lines > 0) trace.mark("logs.followed");
        if (reading.isIncomplete) trace.mark("logs.missing.told");
        resolve();
      });
    });
  }
}

function endMark(error: RpcError | null): string {
  if (error === null) return "logs.ended";
  return error.code === Status.UNKNOWN ? "logs.ended.incomplete" : "logs.cut.off";
}

/** The lines that one reader has received. */
class Reading {
  readonly #last = new Map<string, number>();
  /** By node. */
  readonly #lastReason = new Map<string, string>();
  isIncomplete = false;
  lines = 0;

  /** O1, O2, O4 */
  take({ messages }: SubscribeLogsMessage): string | null {
    for (const { context, data } of messages) {
      const taskId = context?.taskId ?? "";
      if (taskId === "") {
        this.isIncomplete = true;
        const reason = new TextDecoder().decode(data).trimEnd();
        const [, nodeId = ""] = reason.split(" ");
        if (reason.endsWith("is not available") && this.#lastReason.get(nodeId) === reason)
          return `O4: twice in the same absence: ${reason}`;
        this.#lastReason.set(nodeId, reason);
        continue;
      }
      this.lines += 1;
      const [from = "", text = ""] = new TextDecoder().decode(data).trimEnd().split(" ");
      const number = Number(text);
      if (from !== taskId) return `O1: a line of task ${from} arrives as one of ${taskId}`;
      const last = this.#last.get(taskId);
      if (last !== undefined && number <= last) return `O1: line ${number} of task ${taskId} follows line ${last}`;
      if (last !== undefined && number > last + 1 && !this.isIncomplete)
        return `O2: line ${number} of task ${taskId} follows line ${last}, without a report of missing lines`;
      this.#last.set(taskId, number);
    }
    return null;
  }
}
