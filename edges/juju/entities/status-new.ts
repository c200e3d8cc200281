/** FullStatus of 2.x and 3.x (reference §7): 2.9 reads `series`, 3.x reads `base`; both are always present. */
import { hardwareText } from "./cluster-view.ts";
import { baseChannel, baseName, series } from "./platform.ts";
import type { ApplicationView, MachineView, RelationView, UnitView } from "./views.ts";
import type { Fields, StatusForm } from "./status-text.ts";
import type { Life, Word } from "./words.ts";

/** The common form of all statuses. */
function detailed(kind: string, { current, message }: Word, since = "", life: Life | "" = ""): Fields {
  return { status: current, info: message, data: {}, since: since || null, kind, version: "", life };
}

const platform: Fields = { base: { name: baseName, channel: baseChannel }, series };

interface Answering {
  /** Milliseconds since the epoch. */
  readonly nowMs: number;
  /** The server version from the client's login. */
  readonly version: string;
}

export function newStatus({ nowMs, version }: Answering): StatusForm {
  return {
    names: { machines: "machines", applications: "applications", units: "units" },
    whole: ({ model, relations }) => ({
      model: {
        name: model.name,
        type: "iaas",
        "cloud-tag": "cloud-muster",
        region: "",
        version,
        "available-version": "",
        "model-status": detailed("model", { current: "available", message: "" }),
        "meter-status": { color: "", message: "" },
        sla: "unsupported",
      },
      "remote-applications": {},
      offers: {},
      relations: relations.map(relationStatus),
      "controller-timestamp": new Date(nowMs).toISOString(),
      branches: {},
      storage: [],
      filesystems: [],
      volumes: [],
    }),
    machine: machineStatus,
    application: applicationStatus,
    unit: unitStatus,
  };
}

function machineStatus(machine: MachineView): Fields {
  const { id, nodeId, hostname, address, words, since } = machine;
  return {
    "agent-status": detailed("", words.agent, since),
    "instance-status": detailed("", words.instance, since),
    "modification-status": detailed("", { current: "idle", message: "" }),
    hostname,
    "dns-name": address || hostname,
    "ip-addresses": address === "" ? [] : [address],
    "instance-id": nodeId,
    "display-name": hostname,
    ...platform,
    id,
    "network-interfaces": {},
    containers: {},
    constraints: "",
    hardware: hardwareText(machine),
    jobs: machine.isManager ? ["JobManageModel", "JobHostUnits"] : ["JobHostUnits"],
    "has-vote": machine.isManager,
    "wants-vote": machine.isManager,
    "lxd-profiles": {},
  };
}

function applicationStatus(application: ApplicationView, related: readonly string[]): Fields {
  return {
    charm: application.charmUrl,
    "charm-version": "",
    "charm-profile": "",
    "charm-channel": "",
    ...platform,
    exposed: application.isExposed,
    "exposed-endpoints": {},
    life: application.life,
    relations: related.length === 0 ? {} : { network: related },
    "can-upgrade-to": "",
    "subordinate-to": [],
    "meter-statuses": {},
    status: detailed("application", application.word, application.since, application.life),
    "workload-version": application.runs,
    "endpoint-bindings": {},
    "public-address": "",
    // The scale's key in real servers.
    int: application.scale,
  };
}

function unitStatus(unit: UnitView): Fields {
  return {
    "agent-status": detailed("unit", unit.words.agent, unit.since, unit.life),
    "workload-status": detailed("workload", unit.words.workload, unit.since, unit.life),
    "workload-version": unit.runs,
    machine: unit.machine,
    "opened-ports": unit.ports.map(({ number, protocol }) => `${number}/${protocol}`),
    "public-address": unit.publicAddress,
    charm: unit.charmUrl,
    subordinates: {},
    "provider-id": unit.taskId,
    address: unit.privateAddress,
  };
}

function relationStatus({ number, id, driver, applications }: RelationView): Fields {
  return {
    id: number,
    key: id,
    interface: driver,
    scope: "global",
    endpoints: applications.map((application) => ({ application, name: "network", role: "peer", subordinate: false })),
    status: detailed("relation", { current: "joined", message: "" }),
  };
}
