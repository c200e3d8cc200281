/** The licences that a bundle has to bring along. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const top = fileURLToPath(new URL("..", import.meta.url));

const rule = `\n${"-".repeat(80)}\n\n`;

/** The packages that such a text lists, as `NAME@VERSION`. */
export function packagesOf(text: string): readonly string[] {
  return text.split(rule).flatMap((each) => {
    const [, name, version] = /^(\S+) (\S+) \(/.exec(each) ?? [];
    return name === undefined || version === undefined ? [] : [`${name}@${version}`];
  });
}

/** Names, versions and texts of the packages among the inputs of a bundle, whose paths begin at the top of the checkout. */
export function licences(inputs: readonly string[]): string {
  const packages = new Set(
    inputs.flatMap((file) => /^node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? []).toSorted(),
  );
  return [...packages]
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(join(top, folder, "package.json"), "utf8")) as Record<
        string,
        string
      >;
      const file = readdirSync(join(top, folder)).find((each) => /^licen[cs]e/i.test(each));
      const text = file === undefined ? "" : `\n\n${readFileSync(join(top, folder, file), "utf8").trim()}`;
      return `${name} ${version} (${license})${text}\n`;
    })
    .join(rule);
}
