/**
 * `--with-registry-auth`: the user's registry login for an image, as stored by `docker login`, in the form that nodes expect
 * (JSON in URL-safe base64).
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { ContainerSpec, ContainerSpec_PullOptions, ServiceSpec, TaskSpec } from "../../proto/gen/messages.ts";
import { UserError } from "../../lib/user-error.ts";

/** Docker's key of the login to its own registry. */
const hubKey = "https://index.docker.io/v1/";
/** A credential helper may prompt the user. */
const helperTimeoutMs = 60_000;
/** User name that a helper returns with an identity token. */
const tokenUser = "<token>";

interface Login {
  readonly auth?: string;
  readonly username?: string;
  readonly password?: string;
  readonly identitytoken?: string;
  readonly registrytoken?: string;
}

interface DockerConfig {
  readonly auths?: Readonly<Record<string, Login>>;
  readonly credsStore?: string;
  readonly credHelpers?: Readonly<Record<string, string>>;
}

function dockerConfig(): DockerConfig {
  const path = join(process.env["DOCKER_CONFIG"] ?? join(homedir(), ".docker"), "config.json");
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return {};
  }
  try {
    return JSON.parse(text) as DockerConfig;
  } catch (error) {
    throw new UserError(`invalid JSON in ${path}: log in again with 'docker login'`, { cause: error });
  }
}

/** The first component of a reference is a registry if it looks like a host. */
export function registryOf(image: string): string {
  const [first = "", ...rest] = image.split("/");
  const isHost = rest.length > 0 && (/[.:]/.test(first) || first === "localhost");
  return !isHost || first === "docker.io" || first === "index.docker.io" ? hubKey : first;
}

function fromHelper(helper: string, registry: string): Login {
  try {
    const input = `${registry}\n`;
    const output = execFileSync(`docker-credential-${helper}`, ["get"], {
      input,
      encoding: "utf8",
      timeout: helperTimeoutMs,
      stdio: ["pipe", "pipe", "ignore"],
    });
    const answer = JSON.parse(output) as {
      readonly Username?: string;
      readonly Secret?: string;
    };
    return answer.Username === tokenUser
      ? { identitytoken: answer.Secret ?? "" }
      : { username: answer.Username ?? "", password: answer.Secret ?? "" };
  } catch {
    // Without a login, a helper prints "credentials not found" and exits with 1.
    return {};
  }
}

function loginFor(registry: string, { auths = {}, credHelpers = {}, credsStore = "" }: DockerConfig): Login {
  const helper = credHelpers[registry] ?? credsStore;
  if (helper !== "") return fromHelper(helper, registry);
  const bare = (key: string): string => key.replace(/^https?:\/\//, "").replace(/\/.*$/, "");
  const key = Object.keys(auths).find((each) => each === registry || bare(each) === registry) ?? "";
  const { auth, ...login } = auths[key] ?? {};
  const [username = "", ...password] = Buffer.from(auth ?? "", "base64")
    .toString("utf8")
    .split(":");
  return auth === undefined ? login : { ...login, username, password: password.join(":") };
}

/** The login to the registry of `image`; without one, an empty login, as Docker's client sends it. */
export function registryAuth(image: string, config = dockerConfig()): string {
  const registry = registryOf(image);
  const login = { ...loginFor(registry, config), serveraddress: registry };
  const { username, password, ...rest } = login;
  const isEmpty = Object.keys(rest).length === 1 && username === undefined && password === undefined;
  const body = isEmpty ? {} : { username, password, ...rest };
  return Buffer.from(JSON.stringify(body)).toString("base64").replaceAll("+", "-").replaceAll("/", "_");
}

export function withRegistryAuth(spec: ServiceSpec): ServiceSpec {
  const task = spec.task ?? TaskSpec.create({});
  if (task.container === null) throw new UserError("--with-registry-auth is supported for containers only");
  const pullOptions = ContainerSpec_PullOptions.create({ registryAuth: registryAuth(task.container.image) });
  return ServiceSpec.patch(spec, {
    task: TaskSpec.patch(task, { container: ContainerSpec.patch(task.container, { pullOptions }) }),
  });
}
