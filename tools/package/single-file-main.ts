/**
 * Main module of the single-file command. Runs `muster`, or the program that its first argument names, or the driver whose
 * name it was started by.
 */
import { basename } from "node:path";
import { getRawAsset } from "node:sea";
import { programArgument } from "../../lib/installation.ts";
import { moduleLoader } from "./loader.ts";

const bytesOf = (asset: string): Buffer => Buffer.from(getRawAsset(asset) as ArrayBuffer);

const load = moduleLoader({
  read: (name) => ({
    source: bytesOf(`code/${name}`).toString("latin1"),
    cache: bytesOf(`cache/${name}`),
  }),
});

function program(): string {
  const name = basename(process.argv0);
  const driver = name === "muster-dataplane-nft" ? "nftables" : /^muster-driver-(\w+)$/.exec(name)?.[1];
  if (driver !== undefined) return `drivers/${driver}/main`;
  if (process.argv[2] !== programArgument) return "cli/main";
  const [named = ""] = process.argv.splice(2, 2).slice(1);
  return named;
}

load(`${program()}.js`);
