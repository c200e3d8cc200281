/** Docker's `--mount` syntax, and how added and removed mounts change a service's mounts. */
import { resolve } from "node:path";
import {
  Driver,
  Mount,
  Mount_BindOptions,
  Mount_BindOptions_Propagation,
  Mount_Consistency,
  Mount_TmpfsOptions,
  Mount_Type,
  Mount_VolumeOptions,
} from "../../proto/gen/messages.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { parseBooleanFlag } from "../boolean.ts";
import { csvFields, parseBytes, parseChoice } from "../values.ts";

const mountTypes = {
  bind: Mount_Type.BIND,
  volume: Mount_Type.VOLUME,
  tmpfs: Mount_Type.TMPFS,
  npipe: Mount_Type.NPIPE,
  cluster: Mount_Type.CLUSTER,
};
const propagations = {
  rprivate: Mount_BindOptions_Propagation.RPRIVATE,
  private: Mount_BindOptions_Propagation.PRIVATE,
  rshared: Mount_BindOptions_Propagation.RSHARED,
  shared: Mount_BindOptions_Propagation.SHARED,
  rslave: Mount_BindOptions_Propagation.RSLAVE,
  slave: Mount_BindOptions_Propagation.SLAVE,
};
const consistencies = {
  default: Mount_Consistency.DEFAULT,
  consistent: Mount_Consistency.CONSISTENT,
  cached: Mount_Consistency.CACHED,
  delegated: Mount_Consistency.DELEGATED,
};
/** Values of `bind-recursive`: whether submounts are included, and whether they are read-only. */
const recursions: Readonly<Record<string, Partial<Mount_BindOptions>>> = {
  enabled: {},
  disabled: { nonrecursive: true },
  writable: { readonlynonrecursive: true },
  readonly: { readonlyforcerecursive: true },
};

/** Keys that mean `true` without a value. */
const booleanKeys = new Set(["readonly", "ro", "volume-nocopy", "bind-nonrecursive", "bind-create-src"]);

type Draft = { -readonly [Key in keyof Mount]?: Mount[Key] };

function bind(draft: Draft, fields: Partial<Mount_BindOptions>): void {
  draft.bindOptions = Mount_BindOptions.patch(draft.bindOptions ?? Mount_BindOptions.create({}), fields);
}

/** Like Docker's client, names the (default) driver as soon as any volume option is set. */
function volume(
  draft: Draft,
  change: (before: Mount_VolumeOptions, driver: Driver) => Partial<Mount_VolumeOptions>,
): void {
  const before = draft.volumeOptions ?? Mount_VolumeOptions.create({ driverConfig: Driver.create({}) });
  draft.volumeOptions = Mount_VolumeOptions.patch(before, change(before, before.driverConfig ?? Driver.create({})));
}

function tmpfs(draft: Draft, fields: Partial<Mount_TmpfsOptions>): void {
  draft.tmpfsOptions = Mount_TmpfsOptions.patch(draft.tmpfsOptions ?? Mount_TmpfsOptions.create({}), fields);
}

function withPair(pairs: Readonly<Record<string, string>>, text: string): Readonly<Record<string, string>> {
  const at = text.indexOf("=");
  const key = at < 0 ? text : text.slice(0, at);
  return key === "" ? pairs : { ...pairs, [key]: at < 0 ? "" : text.slice(at + 1) };
}

function octal(text: string, flag: string): number {
  if (!/^(?:0o)?[0-7]+$/.test(text))
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected an octal mode such as 1770`);
  return Number.parseInt(text.replace("0o", ""), 8);
}

function take(draft: Draft, key: string, value: string, flag: string): void {
  switch (key) {
    case "type":
      draft.type = parseChoice(value.toLowerCase(), flag, mountTypes);
      return;
    case "source":
    case "src":
      draft.source = /^\.(?:\/|$)/.test(value) ? resolve(value) : value;
      return;
    case "target":
    case "destination":
    case "dst":
      draft.target = value;
      return;
    case "readonly":
    case "ro":
      draft.readonly = parseBooleanFlag(value, `${flag} ${key}`);
      return;
    case "consistency":
      draft.consistency = parseChoice(value.toLowerCase(), flag, consistencies);
      return;
    case "bind-propagation":
      bind(draft, { propagation: parseChoice(value.toLowerCase(), flag, propagations) });
      return;
    case "bind-nonrecursive":
      bind(draft, { nonrecursive: parseBooleanFlag(value, `${flag} ${key}`) });
      return;
    case "bind-recursive":
      bind(draft, parseChoice(value, flag, recursions));
      return;
    case "bind-create-src":
      bind(draft, { createmountpoint: parseBooleanFlag(value, `${flag} ${key}`) });
      return;
    case "volume-subpath":
      volume(draft, () => ({ subpath: value }));
      return;
    case "volume-nocopy":
      volume(draft, () => ({ nocopy: parseBooleanFlag(value, `${flag} ${key}`) }));
      return;
    case "volume-label":
      volume(draft, ({ labels }) => ({ labels: withPair(labels, value) }));
      return;
    case "volume-driver":
      volume(draft, (_, driver) => ({ driverConfig: Driver.patch(driver, { name: value }) }));
      return;
    case "volume-opt":
      volume(draft, (_, driver) => ({
        driverConfig: Driver.patch(driver, { options: withPair(driver.options, value) }),
      }));
      return;
    case "tmpfs-size":
      tmpfs(draft, { sizeBytes: parseBytes(value, flag) });
      return;
    case "tmpfs-mode":
      tmpfs(draft, { mode: octal(value, flag) });
      return;
    default:
      throw new UsageError(`--${flag}: unknown field "${key}"`);
  }
}

/** Parses a mount such as `type=bind,source=/a,target=/b,readonly`. */
export function parseMount(value: string, flag = "mount"): Mount {
  const draft: Draft = { type: Mount_Type.VOLUME };
  for (const field of csvFields(value, flag)) {
    const at = field.indexOf("=");
    const key = (at < 0 ? field : field.slice(0, at)).trim().toLowerCase();
    if (at < 0 && !booleanKeys.has(key))
      throw new UsageError(`--${flag}: invalid field "${field}": expected KEY=VALUE`);
    take(draft, key, at < 0 ? "true" : field.slice(at + 1), flag);
  }
  if ((draft.target ?? "") === "") throw new UsageError(`--${flag}: target=PATH is required`);
  const options = [
    ["bind", draft.bindOptions, Mount_Type.BIND],
    ["volume", draft.volumeOptions, Mount_Type.VOLUME],
    ["tmpfs", draft.tmpfsOptions, Mount_Type.TMPFS],
  ] as const;
  for (const [name, given, type] of options) {
    const isCluster = type === Mount_Type.VOLUME && draft.type === Mount_Type.CLUSTER;
    if (given != null && draft.type !== type && !isCluster) {
      throw new UsageError(`--${flag}: ${name}-… options are not supported for this type of mount`);
    }
  }
  if (draft.type === Mount_Type.BIND && (draft.source ?? "") === "") {
    throw new UsageError(`--${flag}: source=PATH is required for a bind mount`);
  }
  const { propagation, readonlyforcerecursive, readonlynonrecursive } = draft.bindOptions ?? {};
  if (readonlyforcerecursive === true || readonlynonrecursive === true) {
    const option = `bind-recursive=${readonlyforcerecursive === true ? "readonly" : "writable"}`;
    if (draft.readonly !== true) throw new UsageError(`--${flag}: ${option} requires readonly`);
    // An engine would reject each task. Docker's client requires the option to be set; here it is also the default.
    if (readonlyforcerecursive === true && (propagation ?? propagations.rprivate) !== propagations.rprivate)
      throw new UsageError(`--${flag}: ${option} requires bind-propagation=rprivate`);
  }
  return Mount.create(draft);
}

/** Added mounts replace those with the same target. Sorted like Docker's client does, by source, then target. */
export function mountsAfter(
  before: readonly Mount[],
  added: readonly string[],
  removed: readonly string[],
): readonly Mount[] {
  const byTarget = new Map<string, Mount>();
  for (const mount of added.map((text) => parseMount(text, "mount-add"))) {
    if (byTarget.has(mount.target)) throw new UserError(`--mount-add sets the target "${mount.target}" more than once`);
    byTarget.set(mount.target, mount);
  }
  for (const mount of before) if (!byTarget.has(mount.target)) byTarget.set(mount.target, mount);
  const key = ({ source, target }: Mount): string => `${source}\0${target}`;
  return [...byTarget.values()]
    .filter(({ target }) => !removed.includes(target))
    .toSorted((a, b) => (key(a) < key(b) ? -1 : 1));
}
