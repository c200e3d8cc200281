/** Hosts the chart of one task's health check: asks the task's driver, or looks at the task from outside. */
import { healthCheckMachine, type HealthCheckEvent, type HealthNews } from "../../machines/driver/health-check.ts";
import { healthSaid, healthTimes } from "../../machines/driver/health-spec.ts";
import type { HealthCheck } from "../../proto/gen/messages.ts";
import { ExecTaskRequest } from "../../proto/gen/nomad.ts";
import { durationOf } from "../../proto/nomad-time.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import { isPluginGone } from "../../runtime/plugins.ts";
import type { Clock } from "../../runtime/ports.ts";
import type { ProbeOutcome, Probes } from "../../runtime/probes.ts";
import { hosted } from "../hosted.ts";
import { sentence } from "../sentence.ts";
import type { CallTarget } from "./agent-calls.ts";

/** Where a task without an address of its own listens. */
const loopback = "127.0.0.1";

export interface HealthCheckPorts {
  readonly clock: Clock;
  readonly host: Host;
  readonly probes: Probes;
}

export interface HealthCheckOptions {
  readonly taskId: string;
  readonly check: HealthCheck;
  /** A check has passed in an earlier life of the agent. */
  readonly wasHealthy: boolean;
  /** Where its driver runs a command in it. */
  readonly target: () => CallTarget;
  /** Its own address; null: it has its node's. */
  readonly address: () => string | null;
  readonly onNews: (news: HealthNews) => void;
}

const machine = hosted(healthCheckMachine, ["check", "cancelCheck", "announce"]);

export class HealthCheckActor {
  readonly #probes: Probes;
  readonly #options: HealthCheckOptions;
  #actor: HostedActor<typeof healthCheckMachine> | null = null;
  /** Of the check whose answer is awaited; null between two. */
  #current: AbortController | null = null;
  /** A command that was given up and that its driver has not ended: no other is begun, so that they do not pile up. */
  #isCommandLeft = false;
  #isStopped = false;

  constructor(ports: HealthCheckPorts, options: HealthCheckOptions) {
    this.#probes = ports.probes;
    this.#options = options;
    // It is asked for by an action of the task's own chart, within which no other chart can be begun.
    ports.clock.soon(() => {
      if (!this.#isStopped) this.#actor = this.#begin(ports.host);
    });
  }

  /** Nothing is told from now on. */
  stop(): void {
    this.#isStopped = true;
    this.#cancel();
    this.#actor?.stop();
  }

  #begin(host: Host): HostedActor<typeof healthCheckMachine> {
    const { check, onNews, taskId, wasHealthy } = this.#options;
    const input = { taskId, times: healthTimes(check), wasHealthy };
    return machine.start(host, `health-check/${taskId}`, input, {
      effects: {
        check: () => this.#check(),
        cancelCheck: () => this.#cancel(),
        announce: (news: HealthNews) => {
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
      this.#actor?.actor.send(event);
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
    if (this.#isCommandLeft) return { type: "check.failed", reason: "the command before it has not ended" };
    const target = this.#options.target();
    // Its driver is not there just now, or another task's end is not told yet: neither says how the task is.
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

/** What is looked at of each stream of a command's output: drivers keep its last 4 KiB, and need not. */
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
