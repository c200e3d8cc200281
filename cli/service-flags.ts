/** The flags of `service create` and `service update`: one table, named as Docker names them. */

const text = { type: "string" } as const;
const texts = { type: "string", multiple: true } as const;
const yes = { type: "boolean" } as const;

/** What both commands take: each sets one value, whatever it was before. */
export const settingFlags = {
  replicas: text,
  "max-concurrent": text,
  "replicas-max-per-node": text,
  "limit-cpu": text,
  "limit-memory": text,
  "limit-pids": text,
  "reserve-cpu": text,
  "reserve-memory": text,
  "restart-condition": text,
  "restart-delay": text,
  "restart-max-attempts": text,
  "restart-window": text,
  "update-parallelism": text,
  "update-delay": text,
  "update-failure-action": text,
  "update-monitor": text,
  "update-max-failure-ratio": text,
  "update-order": text,
  "rollback-parallelism": text,
  "rollback-delay": text,
  "rollback-failure-action": text,
  "rollback-monitor": text,
  "rollback-max-failure-ratio": text,
  "rollback-order": text,
  "endpoint-mode": text,
  workdir: { type: "string", short: "w" },
  user: { type: "string", short: "u" },
  hostname: text,
  "stop-signal": text,
  "stop-grace-period": text,
  entrypoint: text,
  tty: { type: "boolean", short: "t" },
  "read-only": yes,
  init: yes,
  "log-driver": text,
  "log-opt": texts,
} as const;

/** Options of both commands that change how the command behaves, not the service. */
export const behaviourFlags = {
  detach: { type: "boolean", short: "d" },
  quiet: { type: "boolean", short: "q" },
  // Accepted as Docker's scripts give it: Muster never resolves an image on the manager.
  "no-resolve-image": yes,
} as const;

export const createFlags = {
  ...settingFlags,
  ...behaviourFlags,
  name: text,
  mode: text,
  driver: text,
  env: { type: "string", multiple: true, short: "e" },
  label: { type: "string", multiple: true, short: "l" },
  "container-label": texts,
  constraint: texts,
  "placement-pref": texts,
  "generic-resource": texts,
  publish: { type: "string", multiple: true, short: "p" },
  mount: texts,
  network: texts,
} as const;

export const updateFlags = {
  ...settingFlags,
  ...behaviourFlags,
  image: text,
  args: text,
  force: yes,
  rollback: yes,
  "env-add": texts,
  "env-rm": texts,
  "label-add": texts,
  "label-rm": texts,
  "container-label-add": texts,
  "container-label-rm": texts,
  "constraint-add": texts,
  "constraint-rm": texts,
  "publish-add": texts,
  "publish-rm": texts,
  "mount-add": texts,
  "mount-rm": texts,
} as const;

/** Values as `parseArgs` hands them over. */
export type FlagValues<Flags extends Readonly<Record<string, { readonly type: string; readonly multiple?: boolean }>>> =
  {
    readonly [Name in keyof Flags]?:
      | (Flags[Name] extends { readonly multiple: true }
          ? string[]
          : Flags[Name] extends { readonly type: "boolean" }
            ? boolean
            : string)
      | undefined;
  };
