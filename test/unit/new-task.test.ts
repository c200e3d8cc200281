// Fields that every new task gets from its service and from the cluster.
import test from "ava";
import { newTask, taskTemplate } from "../../machines/orchestration/new-task.ts";
import {
  Cluster,
  ClusterSpec,
  Driver,
  Service,
  ServiceSpec,
  TaskDefaults,
  TaskSpec,
  TaskState,
  Timestamp,
} from "../../proto/gen/messages.ts";

test("a new task logs as its service says, or by the cluster's default", (t) => {
  const driver = (name: string) => Driver.create({ name });
  const cluster = (logDriver: Driver | null) =>
    Cluster.create({ spec: ClusterSpec.create({ taskDefaults: TaskDefaults.create({ logDriver }) }) });
  const service = (logDriver: Driver | null) =>
    Service.create({ id: "s", spec: ServiceSpec.create({ task: TaskSpec.create({ logDriver }) }) });
  const logs = (own: Driver | null, of: Cluster | undefined) =>
    newTask(taskTemplate(service(own), of, Timestamp.create()), "t", 1, TaskState.RUNNING).logDriver?.name;
  t.is(logs(null, cluster(driver("syslog"))), "syslog");
  t.is(logs(driver("none"), cluster(driver("syslog"))), "none");
  t.is(logs(null, cluster(null)), undefined);
  t.is(logs(null, undefined), undefined);
});
