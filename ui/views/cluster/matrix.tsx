/** Nodes × tasks: a card for each node, in it a cell for each task. */
import { signal, useComputed } from "@preact/signals";
import { Component } from "preact";
import { objects, version } from "../../cluster-state.ts";
import { cardsOf, cellAfter, type Card } from "../../model/cluster/matrix.ts";
import {
  availabilityName,
  availabilityOf,
  bytesText,
  nodeState,
  roleName,
  type Reservation,
} from "../../model/cluster/nodes.ts";
import { looks, lookTexts } from "../../model/cluster/tasks.ts";
import type { ClusterRoute } from "../../model/route.ts";
import { NodeSpec_Availability } from "../../../proto/gen/cluster.ts";
import { Gauge, linkTo, Mark } from "./parts.tsx";

/** Nodes above which cards leave out the services' names, so that all of them stay in view. */
const namedCardsMax = 12;

const at = signal("");

function Amount({
  label,
  amount: { reserved, total },
  text,
}: {
  readonly label: string;
  readonly amount: Reservation;
  readonly text: (amount: number) => string;
}) {
  if (total === 0) return null;
  return (
    <>
      <span>{label}</span>
      <Gauge part={reserved} whole={total} />
      <small title={`${label} reserved by tasks`}>
        {text(reserved)} / {text(total)}
      </small>
    </>
  );
}

const cpusText = (cpus: number): string => String(Math.round(cpus * 100) / 100);

interface CardProps {
  readonly card: Card;
  readonly at: string;
  readonly service: string;
  readonly isNamed: boolean;
  readonly isChosen: boolean;
}

/** Drawn again only when something in it has changed: a rollout changes few of a hundred cards at a time. */
class CardView extends Component<CardProps> {
  override shouldComponentUpdate(next: CardProps): boolean {
    const has = ({ at: id, card }: CardProps): boolean => card.signature.includes(id);
    return (
      next.card.signature !== this.props.card.signature ||
      next.card.name !== this.props.card.name ||
      next.service !== this.props.service ||
      next.isNamed !== this.props.isNamed ||
      next.isChosen !== this.props.isChosen ||
      (next.at !== this.props.at && (has(next) || has(this.props)))
    );
  }

  override render({ card, at: current, service, isNamed, isChosen }: CardProps) {
    const { cpus, groups, memory, name, node, size } = card;
    const state = node === null ? "" : nodeState(node);
    const availability = node === null ? NodeSpec_Availability.ACTIVE : availabilityOf(node);
    const isWell = state === "ready" || node === null;
    return (
      <div class={`card ${isWell ? "" : "unwell"} ${node === null ? "unplaced" : ""}`} role="row">
        <div role="rowheader" class="head">
          {node === null ? (
            <b>{name}</b>
          ) : (
            <a href={linkTo("node", node.id)} aria-current={isChosen ? "true" : undefined}>
              {name}
            </a>
          )}
          {node !== null && <span class={isWell ? "state" : "state warn"}>{`${isWell ? "●" : "▲"} ${state}`}</span>}
          {availability !== NodeSpec_Availability.ACTIVE && (
            <span class="badge warn">{availabilityName(availability)}</span>
          )}
          {node !== null && roleName(node) !== "worker" && <span class="badge">{roleName(node)}</span>}
          <small class="size">
            {size} {size === 1 ? "task" : "tasks"}
          </small>
          {node !== null && cpus.total > 0 && (
            <span class="amounts">
              <Amount label="CPU" amount={cpus} text={cpusText} />
              <Amount label="Memory" amount={memory} text={bytesText} />
            </span>
          )}
        </div>
        <div class={isNamed ? "groups named" : "groups"}>
          {groups.map((group) => (
            <div key={group.serviceId} class={service === "" || service === group.serviceId ? "group" : "group other"}>
              {isNamed && <small class="name">{group.name}</small>}
              <div class="cells">
                {group.cells.map(({ id, label, look }) => (
                  <span
                    key={id}
                    id={`cell-${id}`}
                    data-task={id}
                    class={`cell${id === current ? " at" : ""}`}
                    role="gridcell"
                    aria-label={label}
                    aria-selected={id === current}
                    title={label}
                  >
                    <span class={`mark ${look}`} />
                  </span>
                ))}
              </div>
            </div>
          ))}
        </div>
      </div>
    );
  }
}

function Legend() {
  return (
    <p class="looks">
      {looks.map((look) => (
        <span key={look}>
          <Mark look={look} /> {lookTexts[look]}
        </span>
      ))}
    </p>
  );
}

function open(id: string): void {
  window.location.hash = linkTo("task", id);
}

export function Matrix({ route }: { readonly route: ClusterRoute }) {
  const cards = useComputed(() => {
    void version.value;
    return cardsOf(objects.value);
  }).value;
  const chosenTask = route.part === "task" ? route.id : "";
  const current = at.value || chosenTask;
  const service =
    route.part === "service"
      ? route.id
      : route.part === "task"
        ? (objects.value.tasks.get(route.id)?.serviceId ?? "")
        : "";
  function onKeyDown(event: KeyboardEvent): void {
    if (event.target !== event.currentTarget) return;
    if (event.key === "Enter" || event.key === " ") {
      if (current !== "") open(current);
    } else {
      const next = cellAfter(event.key, current, cards);
      if (next === null) return;
      at.value = next;
      document.getElementById(`cell-${next}`)?.scrollIntoView({ block: "nearest" });
    }
    event.preventDefault();
  }
  function onClick(event: MouseEvent): void {
    const cell = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-task]") : null;
    const id = cell?.dataset["task"];
    if (id === undefined) return;
    at.value = id;
    open(id);
  }
  const label = objects.value.tasks.has(current)
    ? cards.flatMap(({ groups }) => groups.flatMap(({ cells }) => cells)).find(({ id }) => id === current)?.label
    : undefined;
  return (
    <section class="matrix" aria-label="Nodes and their tasks">
      <div class="heading">
        <h2>
          Nodes <small>{objects.value.nodes.size}</small>
        </h2>
        <Legend />
      </div>
      <div
        class="cards"
        role="grid"
        aria-label="Tasks by node. Arrow keys move, Enter shows the task"
        tabIndex={0}
        aria-activedescendant={label === undefined ? undefined : `cell-${current}`}
        onKeyDown={onKeyDown}
        onClick={onClick}
      >
        {cards.map((card) => (
          <CardView
            key={card.id}
            card={card}
            at={current}
            service={service}
            isNamed={cards.length <= namedCardsMax}
            isChosen={route.part === "node" && route.id === card.id}
          />
        ))}
      </div>
    </section>
  );
}
