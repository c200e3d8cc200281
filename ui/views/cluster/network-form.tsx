/** Creating a network, and removing one: each first says what follows. */
import { useState } from "preact/hooks";
import { objects, offers, unary, version } from "../../cluster-state.ts";
import {
  creationEffects,
  emptyNetwork,
  networkErrors,
  networkName,
  networkSpecOf,
  removalOf,
  type NetworkErrors,
  type NetworkForm,
} from "../../model/cluster/networks.ts";
import { specYaml } from "../../model/cluster/spec-yaml.ts";
import {
  ControlService,
  CreateNetworkRequest,
  NetworkSpec,
  RemoveNetworkRequest,
  type Network,
} from "../../../proto/gen/cluster.ts";
import { ActButton, linkTo, overview } from "./parts.tsx";

const { methods } = ControlService;

type TextField = "name" | "driver" | "subnet" | "gateway";

const texts: readonly { readonly field: TextField; readonly label: string; readonly hint: string }[] = [
  { field: "name", label: "Name", hint: "" },
  { field: "driver", label: "Driver", hint: "" },
  { field: "subnet", label: "Subnet", hint: "empty: from the cluster's pool" },
  { field: "gateway", label: "Gateway", hint: "empty: the first address" },
];

const choices = [
  { field: "attachable", label: "Standalone containers may attach" },
  { field: "internal", label: "No access to the outside" },
  { field: "encrypted", label: "Encrypt traffic between nodes" },
] as const;

function CreationPlan({ form, onClose }: { readonly form: NetworkForm; readonly onClose: () => void }) {
  const spec = networkSpecOf(form);
  return (
    <section class="plan" aria-label="Plan">
      <h3>Plan: create network {form.name}</h3>
      {creationEffects(form).map((effect) => (
        <p key={effect}>{effect}</p>
      ))}
      <pre class="spec" tabIndex={0} aria-label="Spec as YAML">
        {specYaml(NetworkSpec, spec)}
      </pre>
      <p class="buttons">
        <ActButton
          action="createNetwork"
          what={`create network ${form.name}`}
          isMain
          act={async () => {
            const { network } = await unary(methods.CreateNetwork, CreateNetworkRequest.create({ spec }));
            window.location.hash = network === null ? overview() : linkTo("network", network.id);
          }}
        >
          Create {form.name}
        </ActButton>
        <button type="button" onClick={onClose}>
          Change …
        </button>
      </p>
    </section>
  );
}

export function NewNetwork() {
  void version.value;
  const [form, setForm] = useState(emptyNetwork);
  const [errors, setErrors] = useState<NetworkErrors>({});
  const [isPlanned, setPlanned] = useState(false);
  if (!offers("createNetwork")) return <p class="empty">Your role does not allow to create networks.</p>;
  function submit(event: Event): void {
    event.preventDefault();
    const found = networkErrors(form, objects.value.networks.values());
    setErrors(found);
    setPlanned(Object.keys(found).length === 0);
  }
  return (
    <>
      <h2>New network</h2>
      {isPlanned ? (
        <CreationPlan form={form} onClose={() => setPlanned(false)} />
      ) : (
        <form class="editor" onSubmit={submit} noValidate>
          <div class="fields">
            {texts.map(({ field, label, hint }) => (
              <div key={field} class="field">
                <label for={`network-${field}`}>
                  {label} {hint !== "" && <small>{hint}</small>}
                </label>
                <input
                  id={`network-${field}`}
                  type="text"
                  spellcheck={false}
                  value={form[field]}
                  aria-invalid={errors[field] !== undefined}
                  aria-describedby={errors[field] === undefined ? undefined : `network-error-${field}`}
                  onInput={({ currentTarget }) => setForm({ ...form, [field]: currentTarget.value })}
                />
                {errors[field] !== undefined && (
                  <p id={`network-error-${field}`} class="failure">
                    {errors[field]}
                  </p>
                )}
              </div>
            ))}
            <fieldset class="wide">
              <legend>Options</legend>
              {choices.map(({ field, label }) => (
                <label key={field}>
                  <input
                    type="checkbox"
                    checked={form[field]}
                    onChange={({ currentTarget }) => setForm({ ...form, [field]: currentTarget.checked })}
                  />{" "}
                  {label}
                </label>
              ))}
            </fieldset>
          </div>
          <p class="buttons">
            <button type="submit" class="main">
              Plan …
            </button>
            <button type="button" onClick={() => (window.location.hash = overview())}>
              Cancel
            </button>
          </p>
        </form>
      )}
    </>
  );
}

export function NetworkRemoval({ network, onClose }: { readonly network: Network; readonly onClose: () => void }) {
  const name = networkName(network);
  const { isPossible, text } = removalOf(network, objects.value.services.values(), objects.value.tasks.values());
  return (
    <section class="plan" aria-label="Plan">
      <h3>Plan: remove network {name}</h3>
      <p class={isPossible ? "" : "failure"}>{text}</p>
      <p class="buttons">
        {isPossible && (
          <ActButton
            action="removeNetwork"
            what={`remove network ${name}`}
            isMain
            act={async () => {
              await unary(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId: network.id }));
              window.location.hash = overview();
            }}
          >
            Remove {name}
          </ActButton>
        )}
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </p>
    </section>
  );
}
