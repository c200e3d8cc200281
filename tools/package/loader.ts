/**
 * Loads the modules of a single-file command: scripts in CommonJS form, each with V8's code cache, so that a start compiles
 * nothing. The cache is of the same V8 with the same flags; another V8 rejects it and compiles.
 */
import { createRequire } from "node:module";
import { posix } from "node:path";
import { Script } from "node:vm";

export interface Modules {
  /** The source, in ASCII, and its cache. Throws if there is no such module. */
  read(name: string): { readonly source: string; readonly cache: Buffer | undefined };
  /** Called for each module after its first load. */
  readonly loaded?: (name: string, script: Script) => void;
}

interface Module {
  readonly exports: object;
}

type Wrapper = (exports: object, require: (name: string) => unknown, module: Module) => void;

export function scriptOf(name: string, source: string, cache: Buffer | undefined): Script {
  return new Script(`(function (exports, require, module) {${source}\n})`, {
    filename: `muster:${name}`,
    ...(cache === undefined ? {} : { cachedData: cache }),
  });
}

export function moduleLoader({ loaded, read }: Modules): (name: string) => unknown {
  const modules = new Map<string, Module>();
  const builtin = createRequire("/");
  return function load(name: string): unknown {
    const known = modules.get(name);
    if (known !== undefined) return known.exports;
    const { cache, source } = read(name);
    const script = scriptOf(name, source, cache);
    const module: Module = { exports: {} };
    modules.set(name, module);
    const require = (wanted: string): unknown =>
      wanted.startsWith(".") ? load(posix.join(posix.dirname(name), wanted)) : builtin(wanted);
    (script.runInThisContext() as Wrapper)(module.exports, require, module);
    loaded?.(name, script);
    return module.exports;
  };
}
