/**
 * The requests that are answered, as a table: method, path and handler. A path ends with `/*` where names may contain slashes.
 * Permissions are
 * not decided here: a handler calls the manager's methods as its client, and these have the one table of roles.
 */
import { notHere } from "./failure.ts";
import type { Handler } from "./request.ts";
import { attach, kill, resize, wait } from "./objects/attach.ts";
import { inspectContainer, listContainers } from "./objects/containers.ts";
import { configs, secrets } from "./objects/content.ts";
import { followEvents } from "./objects/events.ts";
import { createExec, inspectExec, resizeExec, startExec } from "./objects/execs.ts";
import { containerLogs, serviceLogs, taskLogs } from "./objects/logs.ts";
import { createNetwork, inspectNetwork, listNetworks, pruneNetworks, removeNetwork } from "./objects/networks.ts";
import { inspectNode, listNodes, removeNode, updateNode } from "./objects/nodes.ts";
import { listProcesses } from "./objects/processes.ts";
import { checkAuth, resolveImage } from "./objects/registry.ts";
import { createService, inspectService, listServices, removeService, updateService } from "./objects/services.ts";
import { init, inspectSwarm, inspectUnlockKey, join, leave, unlock, updateSwarm } from "./objects/swarm.ts";
import { diskUsage, info, listImages, ping, showVersion } from "./objects/system.ts";
import { inspectTask, listTasks } from "./objects/tasks.ts";
import { containerStats } from "./objects/usage.ts";
import { createVolume, inspectVolume, listVolumes, removeVolume, updateVolume } from "./objects/volumes.ts";

type Method = "GET" | "HEAD" | "POST" | "PUT" | "DELETE";
type Route = readonly [method: Method, path: string, handler: Handler];

function elsewhere(what: string, instead: string): Handler {
  return () => {
    throw notHere(what, instead);
  };
}

const images = elsewhere("images and builds", "build and push with an engine, and let the nodes pull");
const plainContainers = elsewhere(
  "containers without a service",
  "create a service (docker service create), or use the engine of a node (docker -H ssh://NODE)",
);
const unused = elsewhere(
  "unused containers, images, local volumes and build caches",
  "prune them on each node (docker -H ssh://NODE system prune)",
);
const plugins = elsewhere("plugins", "install them on the engine of each node (docker -H ssh://NODE plugin install)");

export const routes: readonly Route[] = [
  ["GET", "/_ping", ping],
  ["HEAD", "/_ping", ping],
  ["GET", "/version", showVersion],
  ["GET", "/info", info],
  ["GET", "/events", followEvents],
  ["GET", "/system/df", diskUsage],
  ["POST", "/auth", checkAuth],
  ["GET", "/distribution/*", resolveImage],

  ["GET", "/swarm", inspectSwarm],
  ["POST", "/swarm/init", init],
  ["POST", "/swarm/join", join],
  ["POST", "/swarm/leave", leave],
  ["POST", "/swarm/update", updateSwarm],
  ["GET", "/swarm/unlockkey", inspectUnlockKey],
  ["POST", "/swarm/unlock", unlock],

  ["GET", "/services", listServices],
  ["POST", "/services/create", createService],
  ["GET", "/services/:name", inspectService],
  ["POST", "/services/:name/update", updateService],
  ["DELETE", "/services/:name", removeService],
  ["GET", "/services/:name/logs", serviceLogs],

  ["GET", "/tasks", listTasks],
  ["GET", "/tasks/:name", inspectTask],
  ["GET", "/tasks/:name/logs", taskLogs],

  ["GET", "/nodes", listNodes],
  ["GET", "/nodes/:name", inspectNode],
  ["POST", "/nodes/:name/update", updateNode],
  ["DELETE", "/nodes/:name", removeNode],

  ["GET", "/secrets", secrets.list],
  ["POST", "/secrets/create", secrets.create],
  ["GET", "/secrets/:name", secrets.inspect],
  ["POST", "/secrets/:name/update", secrets.update],
  ["DELETE", "/secrets/:name", secrets.remove],

  ["GET", "/configs", configs.list],
  ["POST", "/configs/create", configs.create],
  ["GET", "/configs/:name", configs.inspect],
  ["POST", "/configs/:name/update", configs.update],
  ["DELETE", "/configs/:name", configs.remove],

  ["GET", "/networks", listNetworks],
  ["POST", "/networks/create", createNetwork],
  ["POST", "/networks/prune", pruneNetworks],
  ["GET", "/networks/*", inspectNetwork],
  ["DELETE", "/networks/*", removeNetwork],

  ["GET", "/containers/json", listContainers],
  ["GET", "/containers/:name/json", inspectContainer],
  ["GET", "/containers/:name/logs", containerLogs],
  ["GET", "/containers/:name/stats", containerStats],
  ["GET", "/containers/:name/top", listProcesses],
  ["POST", "/containers/:name/attach", attach],
  ["POST", "/containers/:name/exec", createExec],
  ["POST", "/containers/:name/kill", kill],
  ["POST", "/containers/:name/resize", resize],
  ["POST", "/containers/:name/wait", wait],
  ["GET", "/exec/:name/json", inspectExec],
  ["POST", "/exec/:name/resize", resizeExec],
  ["POST", "/exec/:name/start", startExec],

  ["GET", "/volumes", listVolumes],
  ["GET", "/volumes/*", inspectVolume],
  ["POST", "/volumes/create", createVolume],
  ["POST", "/volumes/prune", unused],
  ["PUT", "/volumes/*", updateVolume],
  ["DELETE", "/volumes/*", removeVolume],

  ["POST", "/containers/prune", unused],
  ["POST", "/images/prune", unused],
  ["POST", "/build/prune", unused],
  ["GET", "/images/json", listImages],
  ["GET", "/images/*", images],
  ["POST", "/images/*", images],
  ["DELETE", "/images/*", images],
  ["POST", "/build", images],
  ["POST", "/build/*", images],
  ["POST", "/commit", images],
  ["POST", "/session", images],
  ["GET", "/plugins", () => ({ status: 200, body: [] })],
  ["GET", "/plugins/*", plugins],
  ["POST", "/plugins/*", plugins],
  ["DELETE", "/plugins/*", plugins],
  ["POST", "/containers/*", plainContainers],
  ["PUT", "/containers/*", plainContainers],
  ["DELETE", "/containers/*", plainContainers],
];
