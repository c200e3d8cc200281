/** Everything that can be asked for once logged in. */
import type { Facade, FacadeSources } from "../facade.ts";
import { pinger } from "./pinger.ts";

export function createFacades(_sources: FacadeSources): readonly Facade[] {
  return [pinger];
}
