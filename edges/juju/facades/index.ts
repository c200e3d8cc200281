/** All facades that are available after login. */
import type { Facade, FacadeSources } from "../facade.ts";
import { actionFacades } from "./action-facade.ts";
import { Actions } from "./actions.ts";
import { annotationFacades, AnnotationWork } from "./annotations.ts";
import { applicationFacades } from "./application.ts";
import { clientFacades } from "./client.ts";
import { machineFacades } from "./machines.ts";
import { musterFacades } from "./muster.ts";
import { objectFacades } from "./objects.ts";
import { modelFacades } from "./model.ts";
import { Operations } from "./operations.ts";
import type { ClientParts } from "./parts.ts";
import { pinger } from "./pinger.ts";
import { ServiceWrites } from "./service-writes.ts";
import { Subjects } from "./subjects.ts";
import { userFacades } from "./users.ts";
import { watcherFacades } from "./watchers.ts";

export function createFacades(sources: FacadeSources): readonly Facade[] {
  const subjects = new Subjects(sources);
  const services = new ServiceWrites(sources, subjects);
  const annotations = new AnnotationWork(sources, subjects, services);
  const actions = new Actions(sources, subjects);
  const parts: ClientParts = { sources, subjects, services, annotations, actions };
  const reading: readonly Facade[] = [
    ...modelFacades(sources, annotations),
    ...userFacades(sources),
    ...clientFacades(parts),
    ...applicationFacades(parts),
    ...annotationFacades(annotations),
    ...actionFacades(sources, new Operations(sources, subjects, actions)),
    ...machineFacades(parts),
    ...musterFacades(parts),
    ...objectFacades(parts),
  ];
  // The initial view of a large cluster takes seconds: requests wait for it, the rest of the manager does not.
  const ready = (): Promise<void> | null => sources.feed.ready();
  return [pinger, ...watcherFacades, ...reading.map((facade) => ({ ...facade, ready }))];
}
