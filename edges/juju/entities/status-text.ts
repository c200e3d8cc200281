/**
 * The text of a FullStatus. With many units it is written in slices, so that other work can run in between. The text of each
 * unit and machine is cached with its view, for later requests.
 */
import { relatedTo, type ClusterView } from "./cluster-view.ts";
import type { ApplicationView, MachineView, UnitView } from "./views.ts";

export type Fields = Readonly<Record<string, unknown>>;

/** The names and layout of the parts in one generation of clients. */
export interface StatusForm {
  readonly names: { readonly machines: string; readonly applications: string; readonly units: string };
  /** Everything except machines and applications. */
  whole(view: ClusterView): Fields;
  machine(machine: MachineView): Fields;
  /** Everything except its units. */
  application(application: ApplicationView, related: readonly string[]): Fields;
  unit(unit: UnitView): Fields;
}

/** Cached texts by view; one map per form. */
export type StatusTexts = WeakMap<MachineView | UnitView, string>;

/** Number of texts per slice: about 8 ms of work. */
const sliceMax = 500;

const member = (name: string, text: string): string => `${JSON.stringify(name)}:${text}`;
const objectOf = (members: readonly string[]): string => `{${members.join(",")}}`;
/** Adds a member to a non-empty object. */
const withMember = (fields: Fields, name: string, text: string): string =>
  `${JSON.stringify(fields).slice(0, -1)},${member(name, text)}}`;

/** `rest`: lets other work run. */
export async function statusText(
  view: ClusterView,
  form: StatusForm,
  texts: StatusTexts,
  rest: () => Promise<void>,
): Promise<string> {
  const { names } = form;
  let made = 0;
  const isTurnOver = (): boolean => (made += 1) % sliceMax === 0;
  function textOf<Each extends MachineView | UnitView>(each: Each, fields: (each: Each) => Fields): string {
    let text = texts.get(each);
    if (text === undefined) texts.set(each, (text = JSON.stringify(fields(each))));
    return member(each.id, text);
  }
  const units = new Map<string, string[]>();
  for (const unit of view.units) {
    const text = textOf(unit, form.unit);
    const there = units.get(unit.application);
    if (there === undefined) units.set(unit.application, [text]);
    else there.push(text);
    if (isTurnOver()) await rest();
  }
  const machines: string[] = [];
  for (const machine of view.machines) {
    machines.push(textOf(machine, form.machine));
    if (isTurnOver()) await rest();
  }
  const applications: string[] = [];
  for (const application of view.applications) {
    const fields = form.application(application, relatedTo(application.id, view.relations));
    applications.push(
      member(application.id, withMember(fields, names.units, objectOf(units.get(application.id) ?? []))),
    );
    if (isTurnOver()) await rest();
  }
  const head = withMember(form.whole(view), names.machines, objectOf(machines));
  return `${head.slice(0, -1)},${member(names.applications, objectOf(applications))}}`;
}
