/**
 * The JSON API's facades on a test manager: real ones, but agents, leader and nodes' output exist only if the test provides
 * them.
 */
import { createJsonWatchers } from "../../actors/json/watcher.ts";
import { createUsers, setPassword } from "../../actors/json/users.ts";
import { createOperator, type OperatorSources } from "../../actors/operator.ts";
import { createNodeCalls } from "../../actors/node-calls.ts";
import { createTaskCalls } from "../../actors/task-calls.ts";
import type { Environment } from "../../actors/environment.ts";
import type { Facade, FacadeSources } from "../../edges/juju/facade.ts";
import { createFacades } from "../../edges/juju/facades/index.ts";
import { Feed } from "../../edges/juju/feed/feed.ts";
import { LeaderAnswer, type LeaderQuestion } from "../../proto/gen/messages.ts";
import type { Passwords } from "../../runtime/ports/passwords.ts";

export interface TestFacadesOptions {
  readonly control: FacadeSources["control"];
  readonly passwords: Passwords;
  /** Replaces agents and their drivers. */
  readonly taskAccess?: FacadeSources["taskAccess"] | undefined;
  /** Replaces nodes' stored output of tasks; without it there is none. */
  readonly logs?: FacadeSources["logs"] | undefined;
  /** Replaces the leader. */
  readonly leader?: ((question: Partial<LeaderQuestion>) => Partial<LeaderAnswer>) | undefined;
}

export function testFacades(
  env: Environment,
  { control, passwords, taskAccess, logs, leader }: TestFacadesOptions,
): { readonly facades: readonly Facade[]; readonly feed: Feed; stop(): void } {
  const { clock, store } = env;
  const feed = new Feed({ store, clock });
  const calls = createTaskCalls(env, createNodeCalls());
  const ask: OperatorSources["ask"] = (question) =>
    Promise.resolve(
      leader === undefined
        ? { kind: "unanswered", reason: "nobody leads", wokenBy: "a leader" }
        : { kind: "answered", answer: LeaderAnswer.create(leader(question)) },
    );
  const facades = createFacades({
    store,
    clock,
    log: env.telemetry.log,
    control,
    // Only its answers about the leader are used here.
    operator: createOperator(env, { ask } as never).handlers,
    taskAccess: taskAccess ?? calls.access,
    logs: logs ?? { SubscribeLogs: (_request, sink) => sink.end() },
    feed,
    watchers: createJsonWatchers(env),
    users: createUsers(env, passwords).handlers,
    setPassword: (name, password, rpc) => setPassword(env, passwords, name, password, rpc),
  });
  return {
    facades,
    feed,
    stop() {
      calls.stop();
      feed.stop();
    },
  };
}
