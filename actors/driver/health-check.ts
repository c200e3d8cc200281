/** Hosts the chart of one task's health check: runs a command through the task's driver, or probes the task from outside. */
import {
  healthCheckMachine,
  type HealthCheckEvent,
  type HealthNews,
} from "../../machines/driver/health-check.machine.ts";
import { healthSaid, healthTimes } from "../../machines/driver/health-spec.ts";
import type { HealthCheck } from "../../proto/gen/messages.ts";
import { ExecTaskRequest } from "../../proto/gen/nomad.ts";
import { durationOf } from "../../proto/nomad-time.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import { isPluginGone } from "../../runtime/ports/plugins.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { ProbeOutcome, Probes } from "../../runtime/ports/probes.ts";
import { sentence } from "../sentence.ts";
import type { CallTarget } from "../agent/calls.ts";

/** Address of a task without its own. */
const loopback = "127.0.0.1";

interface HealthCheckPorts {
  readonly clock: Clock;
  readonly host: Host;
  readonly probes: Probes;
}

interface HealthCheckOptions {
  readonly taskId: string;
  readonly check: HealthCheck;
  /** Whether a check passed in an earlier agent process. */
  readonly wasHealthy: boolean;
  /** The target for running a command in the task. */
  readonly target: () => CallTarget;
  /** The task's own address; null: its node's. */
  readonly address: () => string | null;
  readonly onNews: (news: HealthNews) => void;
}

export class HealthCheckActor {
  readonly #probes: Probes;
  readonly #options: HealthCheckOptions;
  #actor: HostedActor<typeof healthCheckMachine> | null = null;
  /** Controller of the pending check; null between two. */
  #current: AbortController | null = null;
  /** Whether an abandoned command has not ended yet: no other is started, so that they do not pile up. */
  #isCommandLeft = false;
  #isStopped = false;

  constructor(ports: HealthCheckPorts, options: HealthCheckOptions) {
    this.#probes = ports.probes;
    this.#options = options;
    // It is requested by an action of the task's own chart, in which no other chart can be started.
    ports.clock.soon(() => {
      if (!this.#isStopped) this.#actor = this.#begin(ports.host);
    });
  }

  /** Stops: no more news. */
  stop(): void {
    this.#isStopped = true;
    this.#cancel();
    this.#actor?.stop();
  }

  #begin(host: Host): HostedActor<typeof healthCheckMachine> {
    const { check, onNews, taskId, wasHealthy } = this.#options;
    const input = { taskId, times: healthTimes(check), wasHealthy };
    return host.start(healthCheckMachine, `health-check/${taskId}`, input, {
      effects: {
        check: () => this.#check(),
        cancelCheck: () => this.#cancel(),
        announce: (news) => {
          if (!this.#isStopped) onNews(news);
        },
      },
    });
  }

  #cancel(): void {
    this.#current?.abort();
    this.#current = null;
  }

  #check(): void {
    const controller = new AbortController();
    this.#current = controller;
    const answer = (event: HealthCheckEvent): void => {
      if (this.#current !== controller) return;
      this.#current = null;
      this.#actor?.send(event);
    };
    this.#look(controller.signal).then(answer, (error: unknown) =>
      answer({ type: "check.failed", reason: sentence(error) }),
    );
  }

  async #look(signal: AbortSignal): Promise<HealthCheckEvent> {
    const { command, http, tcp } = this.#options.check;
    const address = this.#options.address() ?? loopback;
    if (http !== null) {
      const { host, port } = http;
      const path = http.path || "/";
      const outcome = await this.#probes.http({ address, port, path, host }, signal);
      return eventOf(outcome, `GET http://${hostText(address)}:${port}${path}`);
    }
    if (tcp !== null) {
      const outcome = await this.#probes.tcp({ address, port: tcp.port }, signal);
      return eventOf(outcome, `connecting to ${hostText(address)}:${tcp.port}`);
    }
    return this.#run(command);
  }

  async #run(command: readonly string[]): Promise<HealthCheckEvent> {
    if (this.#isCommandLeft) return { type: "check.failed", reason: "the previous command has not ended" };
    const target = this.#options.target();
    // The driver is unavailable, or the task's end has not been reported yet: neither shows the task's health.
    if ("reason" in target) return { type: "check.skipped" };
    const { timeoutMs } = healthTimes(this.#options.check);
    this.#isCommandLeft = true;
    try {
      const request = ExecTaskRequest.create({
        taskId: target.driverTaskId,
        command,
        timeout: durationOf(timeoutMs),
      });
      const { result, stderr, stdout } = await target.client.execTask(request);
      const code = result?.exitCode ?? 0;
      if (code === 0 && (result?.signal ?? 0) === 0) return { type: "check.passed" };
      const said = healthSaid([stdout, stderr].map(textOf).join("\n"));
      return { type: "check.failed", reason: `the command exited with ${code}${said === "" ? "" : `: ${said}`}` };
    } catch (error) {
      if (isPluginGone(error)) return { type: "check.skipped" };
      return { type: "check.failed", reason: healthSaid(sentence(error)) };
    } finally {
      this.#isCommandLeft = false;
    }
  }
}

/** Maximum bytes evaluated of each stream of a command's output: drivers keep its last 4 KiB, but need not. */
const outputBytesMax = 4_096;

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes.subarray(-outputBytesMax));
}

function eventOf(outcome: ProbeOutcome, what: string): HealthCheckEvent {
  return outcome.kind === "passed"
    ? { type: "check.passed" }
    : { type: "check.failed", reason: `${what}: ${healthSaid(outcome.reason)}` };
}

function hostText(address: string): string {
  return address.includes(":") ? `[${address}]` : address;
}
