/** `/distribution/{name}/json` and `/auth`: the answers of registries about images and credentials. */
import { badRequest, Failure } from "../failure.ts";
import { bodyOf, ok, type Handler } from "../request.ts";
import { credentialsBody } from "../bodies/registry.ts";
import { parseReference, Registry, type Credentials } from "../registry.ts";

/** The header is base64url of a JSON object. Throws Failure. */
function credentialsOf(header: string | readonly string[] | undefined): Credentials | null {
  if (typeof header !== "string" || header === "") return null;
  try {
    const { username = "", password = "" } = JSON.parse(Buffer.from(header, "base64url").toString("utf8")) as {
      readonly username?: string;
      readonly password?: string;
    };
    return username === "" ? null : { username, password };
  } catch {
    throw badRequest("invalid X-Registry-Auth header: expected base64url of a JSON object");
  }
}

/** For callers that may create services: the manager connects to an address of their choice. */
export const resolveImage: Handler = async ({ calls, message, name, signal }) => {
  calls.demand("operator");
  const image = /^(.+)\/json$/.exec(name)?.[1];
  if (image === undefined) throw new Failure(404, "page not found");
  const reference = parseReference(image);
  return ok(
    await new Registry(reference.host, credentialsOf(message.headers["x-registry-auth"]), signal).resolve(reference),
  );
};

/** Docker Hub, by its old name. */
const hubAddress = "index.docker.io";
const hub = "registry-1.docker.io";

export const checkAuth: Handler = async (request) => {
  request.calls.demand("operator");
  const {
    password,
    serveraddress = "",
    username,
  } = (await bodyOf(request, credentialsBody)) as {
    readonly username?: string;
    readonly password?: string;
    readonly serveraddress?: string;
  };
  const address = serveraddress.replace(/^https?:\/\//, "").replace(/\/.*$/, "");
  const host = address === "" || address === hubAddress || address === "docker.io" ? hub : address;
  if (!/^[a-zA-Z0-9.-]+(?::\d+)?$/.test(host))
    throw badRequest(`invalid registry endpoint ${JSON.stringify(serveraddress)}`);
  await new Registry(host, { username: username ?? "", password: password ?? "" }, request.signal).logIn();
  return ok({ IdentityToken: "", Status: "Login Succeeded" });
};
