/** Cluster objects in Docker's API format: its names, in its order. */
export { configObject, secretObject } from "./content.ts";
export { extensionObject, resourceObject } from "./resource.ts";
export { networkObject } from "./network.ts";
export { nodeObject } from "./node.ts";
export { serviceObject } from "./service.ts";
export { taskObject } from "./task.ts";
export { taskSpecObject } from "./task-spec.ts";
export { volumeAvailabilities, volumeObject, volumeScopes, volumeSharings, volumeWord } from "./volume.ts";
export { timeText, type DockerObject } from "./values.ts";
