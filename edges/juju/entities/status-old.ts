/** FullStatus of 1.x, and the Status of 2013 (reference §7). */
import { hardwareText, type ClusterView } from "./cluster-view.ts";
import { series } from "./platform.ts";
import type { ApplicationView, MachineView, RelationView, UnitView } from "./views.ts";
import type { Fields, StatusForm } from "./status-text.ts";
import type { Life, Word } from "./words.ts";

function detailed(kind: string, { current, message }: Word, since = "", life: Life | "" = ""): Fields {
  return {
    Status: current,
    Info: message,
    Data: {},
    Since: since || null,
    Kind: kind,
    Version: "",
    Life: life,
    Err: null,
  };
}

export const oldStatus: StatusForm = {
  names: { machines: "Machines", applications: "Services", units: "Units" },
  whole: ({ model, relations }) => ({
    EnvironmentName: model.name,
    Networks: {},
    Relations: relations.map(relationStatus),
  }),
  machine: machineStatus,
  application: serviceStatus,
  unit: unitStatus,
};

export function oldestStatus({ machines }: ClusterView): Fields {
  return { Machines: Object.fromEntries(machines.map(({ id, nodeId }) => [id, { InstanceId: nodeId }])) };
}

function machineStatus(machine: MachineView): Fields {
  const { words, since } = machine;
  return {
    Agent: detailed("", words.agent, since, "alive"),
    AgentState: words.agent.current,
    AgentStateInfo: words.agent.message,
    AgentVersion: "",
    Life: "",
    Err: null,
    DNSName: machine.address || machine.hostname,
    InstanceId: machine.nodeId,
    InstanceState: words.instance.current,
    Series: series,
    Id: machine.id,
    Containers: {},
    Hardware: hardwareText(machine),
    Jobs: machine.isManager ? ["JobManageEnviron", "JobHostUnits"] : ["JobHostUnits"],
    HasVote: machine.isManager,
    WantsVote: machine.isManager,
  };
}

function serviceStatus(application: ApplicationView, related: readonly string[]): Fields {
  return {
    Err: null,
    Charm: application.charmUrl,
    Exposed: application.isExposed,
    Life: application.life === "alive" ? "" : application.life,
    Relations: related.length === 0 ? {} : { network: related },
    Networks: { Enabled: [], Disabled: [] },
    CanUpgradeTo: "",
    SubordinateTo: [],
    Status: detailed("application", application.word, application.since, application.life),
  };
}

function unitStatus(unit: UnitView): Fields {
  const { agent, workload, old } = unit.words;
  return {
    UnitAgent: detailed("unit", agent, unit.since, unit.life),
    Workload: detailed("workload", workload, unit.since, unit.life),
    AgentState: old,
    AgentStateInfo: workload.message,
    AgentVersion: "",
    Life: unit.life === "alive" ? "" : unit.life,
    Err: null,
    Machine: unit.machine,
    OpenedPorts: unit.ports.map(({ number, protocol }) => `${number}/${protocol}`),
    PublicAddress: unit.publicAddress,
    Charm: unit.charmUrl,
    Subordinates: {},
  };
}

function relationStatus({ number, id, driver, applications }: RelationView): Fields {
  return {
    Id: number,
    Key: id,
    Interface: driver,
    Scope: "global",
    Endpoints: applications.map((application) => ({
      ServiceName: application,
      Name: "network",
      Role: "peer",
      Subordinate: false,
    })),
  };
}
