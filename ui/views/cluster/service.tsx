/** A service: its rollout, what it waits for, its tasks, and changes, each of which shows its plan first. */
import { useMemo, useState } from "preact/hooks";
import { nodeName, objects, offers, unary, version } from "../../cluster-state.ts";
import { countsOf, modeOf, removalEffect, replicasOf, serviceName } from "../../model/cluster/services.ts";
import { formOf, scaledTo } from "../../model/cluster/spec-form.ts";
import { byAge, isEnded, taskName } from "../../model/cluster/tasks.ts";
import {
  ControlService,
  RemoveServiceRequest,
  ServiceSpec,
  type Service,
  type Task,
} from "../../../proto/gen/cluster.ts";
import { ActorLinks } from "./actor-links.tsx";
import { LogsPanel } from "./logs.tsx";
import { ActButton, Ago, OpenButton, overview } from "./parts.tsx";
import { Plan, type Wish } from "./plan.tsx";
import { RolloutPanel } from "./rollout.tsx";
import { SpecView } from "./spec.tsx";
import { EditService } from "./service-form.tsx";
import { TasksTable } from "./tasks-table.tsx";
import { Why } from "./why.tsx";

function tasksOf(id: string): readonly Task[] {
  return [...objects.value.tasks.values()]
    .filter(({ serviceId }) => serviceId === id)
    .toSorted((a, b) => a.slot - b.slot || Number(isEnded(a)) - Number(isEnded(b)) || byAge(a, b));
}

function Scale({ service, plan }: { readonly service: Service; readonly plan: (wish: Wish) => void }) {
  const now = replicasOf(service);
  const [text, setText] = useState("");
  if (now === null || !offers("updateService")) return null;
  const count = Number(text);
  const isValid = text.trim() !== "" && Number.isInteger(count) && count >= 0;
  const name = serviceName(service);
  return (
    <form
      class="scale"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isValid) return;
        plan({
          what: `scale ${name} from ${now} to ${count}`,
          button: `Scale to ${count}`,
          action: "updateService",
          serviceId: service.id,
          spec: (present) => {
            const spec = present?.spec ?? ServiceSpec.create({});
            return ServiceSpec.patch(spec, scaledTo(spec, count));
          },
          done: () => setText(""),
        });
      }}
    >
      <label>
        Replicas{" "}
        <input
          type="number"
          min={0}
          step={1}
          placeholder={String(now)}
          value={text}
          onInput={({ currentTarget }) => setText(currentTarget.value)}
        />
      </label>
      <button type="submit" disabled={!isValid}>
        Scale …
      </button>
    </form>
  );
}

function Removal({
  service,
  tasks,
  onClose,
}: {
  readonly service: Service;
  readonly tasks: readonly Task[];
  readonly onClose: () => void;
}) {
  const name = serviceName(service);
  return (
    <section class="plan" aria-label="Plan">
      <h3>Plan: remove {name}</h3>
      <p>{removalEffect(service, tasks, nodeName.value)}</p>
      <p class="buttons">
        <ActButton
          action="removeService"
          what={`remove ${name}`}
          isMain
          act={async () => {
            await unary(ControlService.methods.RemoveService, RemoveServiceRequest.create({ serviceId: service.id }));
            window.location.hash = overview();
          }}
        >
          Remove {name}
        </ActButton>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </p>
    </section>
  );
}

function Facts({ service, tasks }: { readonly service: Service; readonly tasks: readonly Task[] }) {
  const { endpoint, meta, spec } = service;
  const form = formOf(spec ?? ServiceSpec.create({}));
  const { running, wanted } = countsOf(service, tasks);
  const ports = (endpoint?.ports ?? []).map(({ publishedPort, targetPort }) => `${publishedPort} → ${targetPort}`);
  const networks = form.networks.map((id) => objects.value.networks.get(id)?.spec?.annotations?.name ?? id);
  const facts: readonly (readonly [string, string])[] = [
    [
      form.runtime === "exec" ? "Command" : form.runtime === "container" ? "Image" : "Driver",
      form.image || (spec?.task?.generic?.kind ?? ""),
    ],
    ["Mode", modeOf(service)],
    ["Tasks", `${running} of ${wanted} ${modeOf(service).endsWith("job") ? "complete or running" : "running"}`],
    ["Ports", ports.join(", ")],
    ["Networks", networks.join(", ")],
    ["Id", service.id],
  ];
  return (
    <dl class="facts">
      {facts.map(
        ([name, text]) =>
          text !== "" && (
            <>
              <dt>{name}</dt>
              <dd>{text}</dd>
            </>
          ),
      )}
      <dt>Changed</dt>
      <dd>
        <Ago time={meta?.updatedAt} />
      </dd>
    </dl>
  );
}

type Open = { readonly kind: "plan"; readonly wish: Wish } | { readonly kind: "edit" | "remove" } | null;

export function ServiceDetail({ id }: { readonly id: string }) {
  void version.value;
  const [open, setOpen] = useState<Open>(null);
  const service = objects.value.services.get(id);
  const tasks = tasksOf(id);
  const changes = useMemo(
    () => ({}),
    [tasks.map(({ meta }) => meta?.version?.index).join(), service?.meta?.version?.index],
  );
  if (service === undefined)
    return <p class="empty">There is no service with the id {id}. It may have been removed.</p>;
  const name = serviceName(service);
  const close = (): void => setOpen(null);
  const plan = (wish: Wish): void =>
    setOpen({
      kind: "plan",
      wish: {
        ...wish,
        done: (done) => {
          wish.done(done);
          close();
        },
      },
    });
  return (
    <>
      <h2>{name}</h2>
      <Facts service={service} tasks={tasks} />
      <div class="buttons">
        <Scale service={service} plan={plan} />
        <OpenButton
          action="updateService"
          isOpen={open?.kind === "edit"}
          onClick={() => setOpen(open?.kind === "edit" ? null : { kind: "edit" })}
        >
          Update …
        </OpenButton>
        {service.previousSpec !== null && (
          <OpenButton
            action="updateService"
            isOpen={false}
            onClick={() =>
              plan({
                what: `roll ${name} back to its previous spec`,
                button: "Roll back",
                action: "updateService",
                serviceId: id,
                spec: () => null,
                done: () => undefined,
              })
            }
          >
            Roll back …
          </OpenButton>
        )}
        <OpenButton action="removeService" isOpen={open?.kind === "remove"} onClick={() => setOpen({ kind: "remove" })}>
          Remove …
        </OpenButton>
      </div>
      {open?.kind === "plan" && <Plan wish={open.wish} onClose={close} />}
      {open?.kind === "edit" && <EditService service={service} plan={plan} onClose={close} />}
      {open?.kind === "remove" && <Removal service={service} tasks={tasks} onClose={close} />}
      <RolloutPanel service={service} changes={changes} plan={plan} />
      <Why id={id} changes={changes} />
      <h3>
        Tasks <small>{tasks.length}</small>
      </h3>
      <TasksTable tasks={tasks} nameOf={(task) => taskName(task, nodeName.value)} place="node" />
      <LogsPanel target={{ serviceIds: [id] }} />
      <ActorLinks id={id} />
      <SpecView codec={ServiceSpec} spec={service.spec} />
    </>
  );
}
