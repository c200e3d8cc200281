/** The whole spec of an object as YAML, folded until somebody wants it. */
import { useState } from "preact/hooks";
import { specYaml } from "../../model/cluster/spec-yaml.ts";

export function SpecView<Spec>({
  codec,
  spec,
}: {
  readonly codec: { toJson(message: Spec): Record<string, unknown> };
  readonly spec: Spec | null;
}) {
  const [isOpen, setOpen] = useState(false);
  if (spec === null) return null;
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Spec</summary>
      {isOpen && (
        <pre class="spec" tabIndex={0} aria-label="Spec as YAML">
          {specYaml(codec, spec)}
        </pre>
      )}
    </details>
  );
}
