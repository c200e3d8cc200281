/** Forms for a new service and for the spec of an existing one: fields, or the whole spec as YAML. */
import { useState } from "preact/hooks";
import { objects, offers, version } from "../../cluster-state.ts";
import { serviceName } from "../../model/cluster/services.ts";
import {
  emptySpec,
  formErrors,
  formOf,
  rebased,
  specWith,
  type FormErrors,
  type ServiceForm,
} from "../../model/cluster/spec-form.ts";
import { specFrom, specYaml } from "../../model/cluster/spec-yaml.ts";
import { ServiceSpec, type Service } from "../../../proto/gen/cluster.ts";
import { linkTo, OpenButton, overview } from "./parts.tsx";
import { Plan, type Wish } from "./plan.tsx";

interface FieldProps {
  readonly form: ServiceForm;
  readonly errors: FormErrors;
  readonly set: (fields: Partial<ServiceForm>) => void;
}

/** Names of the fields that are texts. */
type TextField = {
  [Field in keyof ServiceForm]: ServiceForm[Field] extends string ? Field : never;
}[keyof ServiceForm];

function Field({
  field,
  label,
  lines = 1,
  hint = "",
  form,
  errors,
  set,
}: FieldProps & {
  readonly field: TextField;
  readonly label: string;
  /** More than one: a field of several lines. */
  readonly lines?: number;
  readonly hint?: string;
}) {
  const error = errors[field] ?? "";
  const shared = {
    id: `field-${field}`,
    value: form[field],
    "aria-invalid": error !== "",
    "aria-describedby": error === "" ? undefined : `error-${field}`,
    spellcheck: false,
  };
  return (
    <div class={lines > 1 ? "field wide" : "field"}>
      <label for={shared.id}>
        {label} {hint !== "" && <small>{hint}</small>}
      </label>
      {lines > 1 ? (
        <textarea {...shared} rows={lines} onInput={({ currentTarget }) => set({ [field]: currentTarget.value })} />
      ) : (
        <input {...shared} type="text" onInput={({ currentTarget }) => set({ [field]: currentTarget.value })} />
      )}
      {error !== "" && (
        <p id={`error-${field}`} class="failure">
          {error}
        </p>
      )}
    </div>
  );
}

function Choice({
  field,
  label,
  options,
  form,
  set,
}: FieldProps & { readonly field: TextField; readonly label: string; readonly options: readonly string[] }) {
  return (
    <div class="field">
      <label for={`field-${field}`}>{label}</label>
      <select
        id={`field-${field}`}
        value={form[field]}
        onChange={({ currentTarget }) => set({ [field]: currentTarget.value })}
      >
        {options.map((option) => (
          <option key={option}>{option}</option>
        ))}
      </select>
    </div>
  );
}

function Fields(props: FieldProps & { readonly isNew: boolean }) {
  const { form, isNew, set } = props;
  const networks = [...objects.value.networks.values()].filter(({ spec }) => spec?.ingress !== true);
  const isExec = form.runtime === "exec";
  return (
    <div class="fields">
      {isNew && <Field {...props} field="name" label="Name" />}
      {form.runtime === "other" ? (
        <p class="note wide">Tasks of this driver are configured in the whole spec.</p>
      ) : (
        <>
          <Field
            {...props}
            field="image"
            label={isExec ? "Command" : "Image"}
            hint={isExec ? "a path, or a name on the node's PATH" : ""}
          />
          {isNew && <Choice {...props} field="mode" label="Mode" options={["replicated", "global"]} />}
        </>
      )}
      {form.mode !== "global" && (
        <Field {...props} field="replicas" label={form.mode === "job" ? "Completions" : "Replicas"} />
      )}
      {form.runtime !== "other" && (
        <>
          <Field {...props} field="args" label="Arguments" hint="one per line" lines={3} />
          <Field {...props} field="env" label="Environment" hint="NAME=value, one per line" lines={3} />
        </>
      )}
      <Field {...props} field="ports" label="Ports" hint="PUBLISHED:TARGET, one per line" lines={2} />
      {networks.length > 0 && (
        <fieldset class="wide">
          <legend>Networks</legend>
          {networks.map(({ id, spec }) => (
            <label key={id}>
              <input
                type="checkbox"
                checked={form.networks.includes(id)}
                onChange={({ currentTarget }) =>
                  set({
                    networks: currentTarget.checked
                      ? [...form.networks, id]
                      : form.networks.filter((each) => each !== id),
                  })
                }
              />{" "}
              {spec?.annotations?.name ?? id}
            </label>
          ))}
        </fieldset>
      )}
      {form.mode !== "job" && (
        <fieldset class="wide fields">
          <legend>Updates</legend>
          <Field {...props} field="parallelism" label="Tasks at a time" />
          <Field {...props} field="delay" label="Delay between" hint="seconds" />
          <Choice {...props} field="order" label="Order" options={["stop-first", "start-first"]} />
          <Field {...props} field="monitor" label="Watch a new task" hint="seconds" />
          <Field {...props} field="maxFailureRatio" label="Tolerated failures" hint="0 to 1" />
          <Choice {...props} field="failureAction" label="Beyond that" options={["pause", "continue", "rollback"]} />
        </fieldset>
      )}
    </div>
  );
}

interface EditorProps {
  readonly base: ServiceSpec;
  readonly isNew: boolean;
  /** Gets the spec, given that of the present service. */
  readonly onPlan: (spec: (now: ServiceSpec) => ServiceSpec) => void;
  readonly onClose: () => void;
}

function Editor({ base, isNew, onPlan, onClose }: EditorProps) {
  const [form, setForm] = useState(() => formOf(base));
  const [yaml, setYaml] = useState<string | null>(null);
  const [errors, setErrors] = useState<FormErrors>({});
  const [failure, setFailure] = useState("");
  function change(fields: Partial<ServiceForm>): void {
    setForm({ ...form, ...fields });
    setErrors(Object.fromEntries(Object.entries(errors).filter(([field]) => !(field in fields))));
  }
  function submit(event: Event): void {
    event.preventDefault();
    setFailure("");
    if (yaml === null) {
      const found = formErrors(form);
      setErrors(found);
      if (Object.keys(found).length > 0) return setFailure("Some fields have errors.");
      return onPlan((now) => (isNew ? specWith(base, form) : specWith(now, rebased(form, base, now))));
    }
    const spec = specFrom(yaml);
    if (typeof spec === "string") return setFailure(spec);
    onPlan(() => spec);
  }
  /** What was typed goes along, if it can be read. */
  function toYaml(): void {
    const found = formErrors(form);
    setYaml(specYaml(ServiceSpec, Object.keys(found).length > 0 ? base : specWith(base, form)));
    setFailure("");
  }
  function toForm(): void {
    const spec = specFrom(yaml ?? "");
    if (typeof spec === "string") return setFailure(spec);
    setForm(formOf(spec));
    setFailure("");
    setYaml(null);
  }
  return (
    <form class="editor" onSubmit={submit} noValidate>
      <p class="tabs" role="group" aria-label="Edit as">
        <button type="button" aria-pressed={yaml === null} onClick={() => yaml !== null && toForm()}>
          Form
        </button>
        <button type="button" aria-pressed={yaml !== null} onClick={() => yaml === null && toYaml()}>
          Whole spec
        </button>
      </p>
      {yaml === null ? (
        <Fields form={form} errors={errors} set={change} isNew={isNew} />
      ) : (
        <textarea
          class="yaml"
          aria-label="Spec as YAML"
          spellcheck={false}
          rows={24}
          value={yaml}
          onInput={({ currentTarget }) => setYaml(currentTarget.value)}
        />
      )}
      {failure !== "" && (
        <p class="failure" role="alert">
          {failure}
        </p>
      )}
      <p class="buttons">
        <button type="submit" class="main">
          Plan …
        </button>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </p>
    </form>
  );
}

export function EditService({
  service,
  plan,
  onClose,
}: {
  readonly service: Service;
  readonly plan: (wish: Wish) => void;
  readonly onClose: () => void;
}) {
  const [base] = useState(() => service.spec ?? ServiceSpec.create({}));
  const name = serviceName(service);
  return (
    <section class="plan" aria-label="Update">
      <h3>Update {name}</h3>
      <Editor
        base={base}
        isNew={false}
        onClose={onClose}
        onPlan={(spec) =>
          plan({
            what: `update ${name}`,
            button: "Update",
            action: "updateService",
            serviceId: service.id,
            spec: (now) => spec(now?.spec ?? base),
            done: () => undefined,
          })
        }
      />
    </section>
  );
}

export function NewService() {
  void version.value;
  const [runtime, setRuntime] = useState<"container" | "exec">("container");
  const [base, setBase] = useState(() => emptySpec("container"));
  const [wish, setWish] = useState<Wish | null>(null);
  if (!offers("createService")) return <p class="empty">Your role does not allow to create services.</p>;
  function choose(next: "container" | "exec"): void {
    setRuntime(next);
    setBase(emptySpec(next));
  }
  return (
    <>
      <h2>New service</h2>
      {/* Not removed while its plan is shown: what was typed stays. */}
      <div hidden={wish !== null}>
        <p class="tabs" role="group" aria-label="Runs">
          <button type="button" aria-pressed={runtime === "container"} onClick={() => choose("container")}>
            Containers
          </button>
          <button type="button" aria-pressed={runtime === "exec"} onClick={() => choose("exec")}>
            Processes
          </button>
        </p>
        <Editor
          key={runtime}
          base={base}
          isNew
          onClose={() => (window.location.hash = overview())}
          onPlan={(spec) => {
            const wanted = spec(base);
            const name = wanted.annotations?.name ?? "";
            setWish({
              what: `create ${name}`,
              button: `Create ${name}`,
              action: "createService",
              serviceId: "",
              spec: () => wanted,
              done: (id) => (window.location.hash = linkTo("service", id)),
            });
          }}
        />
      </div>
      {wish !== null && (
        <>
          <Plan wish={wish} onClose={() => (window.location.hash = overview())} />
          <OpenButton action="createService" isOpen={false} onClick={() => setWish(null)}>
            Change …
          </OpenButton>
        </>
      )}
    </>
  );
}
