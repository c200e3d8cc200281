/** Resolves the subjects of requests by tag, name or number. Unknown ones are `not found`. */
import type { Cluster, Node, Service, Task } from "../../../proto/gen/messages.ts";
import { applicationName, unitOfTag } from "../entities/names.ts";
import type { ApplicationView, MachineView, UnitView } from "../entities/views.ts";
import type { FacadeSources } from "../facade.ts";
import { RequestError } from "../request-error.ts";

export const notFound = (noun: string, id: string): RequestError =>
  new RequestError(`${noun} ${id} not found`, "not found");

export function notSupported(why: string): RequestError {
  return new RequestError(why, "not supported");
}

export class Subjects {
  readonly #sources: Pick<FacadeSources, "feed" | "store">;

  constructor(sources: Pick<FacadeSources, "feed" | "store">) {
    this.#sources = sources;
  }

  machine(id: string): MachineView {
    const view = this.#sources.feed.find("machine", id);
    if (view === undefined) throw notFound("machine", id);
    return view;
  }

  node(id: string): Node {
    const { nodeId } = this.machine(id);
    const node = this.#sources.store.get("node", nodeId);
    if (node === undefined) throw notFound("machine", id);
    return node;
  }

  /** By its name in this API, or by its service's name. */
  application(name: string): ApplicationView {
    const { feed } = this.#sources;
    const view = feed.find("application", name) ?? feed.find("application", applicationName(name));
    if (view === undefined) throw notFound("application", JSON.stringify(name));
    return view;
  }

  service(name: string): Service {
    const { serviceId } = this.application(name);
    const service = this.#sources.store.get("service", serviceId);
    if (service === undefined) throw notFound("application", JSON.stringify(name));
    return service;
  }

  unit(name: string): UnitView {
    const view = this.#sources.feed.find("unit", name);
    if (view === undefined) throw notFound("unit", JSON.stringify(name));
    return view;
  }

  task(unit: string): Task {
    const { taskId } = this.unit(unit);
    const task = this.#sources.store.get("task", taskId);
    if (task === undefined) throw notFound("unit", JSON.stringify(unit));
    return task;
  }

  cluster(): Cluster {
    for (const cluster of this.#sources.store.all("cluster")) return cluster;
    throw notFound("model", "");
  }
}

/** Accepts `application-web` and `service-web`. */
export function applicationOfTag(tag: string): string {
  const match = /^(?:application|service)-(.+)$/.exec(tag);
  if (match === null) throw invalidTag(tag, "application");
  return match[1] as string;
}

export function machineOfTag(tag: string): string {
  const match = /^machine-(\d+)$/.exec(tag);
  if (match === null) throw invalidTag(tag, "machine");
  return match[1] as string;
}

/** Accepts a tag or a plain unit name. */
export function unitOf(text: string): string {
  if (/^[^/]+\/\d+$/.test(text)) return text;
  const unit = unitOfTag(text);
  if (unit === null) throw invalidTag(text, "unit");
  return unit;
}

export function invalidTag(tag: string, noun: string): RequestError {
  return new RequestError(`${JSON.stringify(tag)} is not a valid ${noun} tag`, "bad request");
}
