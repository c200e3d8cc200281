// Docker's unmodified client at the containers of tasks: exec, attach, top, stats, wait and kill, at a stock manager that runs the
// task itself, and at ours, whose agent runs it on an engine of another machine's socket.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { ask } from "../fixtures/engine-api.ts";
import { startAgent, startManager } from "../fixtures/muster.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

interface Ran {
  readonly status: number | null;
  readonly out: string;
  readonly err: string;
}

interface Running {
  readonly ended: Promise<Ran>;
  readonly output: () => string;
  readonly type: (text: string) => void;
}

/** `input`: what the command gets, then its end; null: neither. */
function start(socket: string, words: readonly string[], input: string | null = null): Running {
  const child = spawn("docker", ["-H", `unix://${socket}`, ...words], { stdio: "pipe" });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data: Buffer) => (out += data.toString()));
  child.stderr.on("data", (data: Buffer) => (err += data.toString()));
  child.stdin.on("error", () => undefined);
  if (input !== null) child.stdin.end(input);
  const timer = setTimeout(() => child.kill("SIGKILL"), patient(40_000));
  const type = (text: string): void => void child.stdin.write(text);
  const ended = once(child, "close").then(([status]) => {
    clearTimeout(timer);
    return { status: status as number | null, out, err };
  });
  return { ended, output: () => out, type };
}

function docker(socket: string, words: readonly string[], input = ""): Promise<Ran> {
  return start(socket, words, input).ended;
}

/** In a terminal of 31 rows and 77 columns, typing a line after each prompt. */
async function typed(
  socket: string,
  words: readonly string[],
  lines: readonly string[],
  isPrompted = true,
): Promise<Ran> {
  const command = ["docker", "-H", `unix://${socket}`, ...words].map((word) => `'${word}'`).join(" ");
  const child = spawn("script", ["-qec", `stty rows 31 cols 77; exec ${command}`, "/dev/null"], { stdio: "pipe" });
  let out = "";
  let sent = 0;
  const timer = setTimeout(() => child.kill("SIGKILL"), patient(30_000));
  // A shell that waits already shows its prompt again after an empty line.
  const knocking = isPrompted ? undefined : setInterval(() => out.includes("# ") || child.stdin.write("\r"), 500);
  child.stdout.on("data", (data: Buffer) => {
    // The shell of busybox asks its terminal where the cursor is, and clears the line after its prompt when the size changes.
    out = stripVTControlCharacters(`${out}${data.toString()}`);
    const line = lines[sent];
    if (line === undefined || out.split("# ").length <= sent + 1 || !out.endsWith("# ")) return;
    sent += 1;
    child.stdin.write(`${line}\r`);
  });
  const [status] = (await once(child, "close")) as [number | null];
  clearTimeout(timer);
  clearInterval(knocking);
  return { status, out, err: "" };
}

/** Docker's client sets the size of a terminal once the command runs: the shell may show its prompt before. */
const untilSized = 'until [ "$(stty size)" = "31 77" ]; do sleep 0.1; done';

interface Side {
  readonly socket: string;
  /** Name of the service's container. */
  readonly container: string;
}

const ticking = "echo begun; echo wrong >&2; i=0; while :; do sleep 0.2; i=$((i+1)); echo tick; done";

async function sides(t: ExecutionContext): Promise<{ readonly stock: Side; readonly ours: Side }> {
  const [engine, elsewhere, manager] = await Promise.all([startEngine(t), startEngine(t), startManager(t)]);
  await engine.setClientVersion();
  await engine.docker(
    "swarm",
    "init",
    "--listen-addr",
    `${engine.host}:${await freePort()}`,
    "--advertise-addr",
    engine.host,
  );
  await manager.ready();
  const settings = {
    endpoint: `unix://${join(elsewhere.dir, "docker.sock")}`,
    state_dir: join(elsewhere.dir, "notes"),
    allow_privileged: true,
  };
  await startAgent(t, manager, {
    hostname: "one",
    args: [
      "--driver",
      `docker=${join(mockDriver, "../muster-driver-docker")}`,
      "--driver-config",
      `docker=${JSON.stringify(settings)}`,
    ],
  });
  const sideOf = async (socket: string): Promise<Side> => {
    const create = ["service", "create", "-d", "--no-resolve-image", "--name", "web", "--stop-signal", "KILL"];
    const made = await docker(socket, [...create, "--restart-condition", "none", "bb:1", "sh", "-c", ticking]);
    t.is(made.status, 0, made.err);
    let container = "";
    const list = ["ps", "--filter", "name=web.1", "--filter", "status=running", "--format", "{{.Names}}"];
    await until("the container to run", async () => (container = (await docker(socket, list)).out.trim()) !== "");
    return { socket, container };
  };
  return {
    stock: await sideOf(join(engine.dir, "docker.sock")),
    ours: await sideOf(join(manager.dataDir, "docker.sock")),
  };
}

type Both = (run: (side: Side) => Promise<unknown>) => Promise<unknown>;

const echoing = 'while read line; do echo got $line; echo wrong $line >&2; test "$line" = end && exit 5; done';

/** Services with an open standard input, which Docker's client cannot create by flags. */
async function withOpenInput(both: Both): Promise<void> {
  const run = async ({ socket }: Side, name: string, command: readonly string[], TTY: boolean): Promise<string> => {
    const ContainerSpec = { Image: "bb:1", Command: command, OpenStdin: true, TTY };
    const body = JSON.stringify({
      Name: name,
      TaskTemplate: { ContainerSpec, RestartPolicy: { Condition: "none" } },
      Mode: { Replicated: { Replicas: 1 } },
    });
    await ask(socket, { method: "POST", path: "/v1.41/services/create", body });
    let container = "";
    const list = ["ps", "--filter", `name=${name}.1`, "--filter", "status=running", "--format", "{{.Names}}"];
    await until("the container to run", async () => (container = (await docker(socket, list)).out.trim()) !== "");
    return container;
  };

  await both(async (side) => {
    const container = await run(side, "echoes", ["sh", "-c", echoing], false);
    const attach = start(side.socket, ["attach", container]);
    attach.type("one\n");
    await until("an answer to the first line", async () => attach.output().includes("got one"));
    attach.type("end\n");
    return attach.ended;
  });

  await both(async (side) => {
    const container = await run(side, "shell", ["sh"], true);
    const path = `/v1.41/containers/${container}/attach?stream=1&stdin=1&stdout=1&detachKeys=`;
    const wrong = await ask(side.socket, { method: "POST", path: `${path}ctrl-0` });
    const left = await typed(side.socket, ["attach", "--detach-keys", "x,y", container], ["xy"], false);
    const detached = await detachedBy(side.socket, `${path}v,w`, "vw");
    const states = await docker(side.socket, ["ps", "--filter", "name=shell.1", "--format", "{{.State}}"]);
    const lines = [`${untilSized}; stty size; echo $((40 + 2))`, "exit 7"];
    const { out, status } = await typed(side.socket, ["attach", container], lines, false);
    return {
      // A stock engine answers in plain text here.
      wrong: [wrong.status, wrong.text.includes("Invalid detach keys (ctrl-0) provided")],
      left: { status: left.status, says: left.out.includes("read escape sequence") },
      detached,
      states: states.out,
      ended: { status, has: [/\n42\r/.test(out), /\n31 77\r/.test(out)] },
    };
  });
}

/** Attaches without Docker's client, which watches for the keys by itself. True if the server closes the connection. */
async function detachedBy(path: string, target: string, keys: string): Promise<boolean> {
  const socket = connect({ path, allowHalfOpen: true });
  socket.on("error", () => undefined).resume();
  const ended = once(socket, "end");
  socket.write(`POST ${target} HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`);
  await once(socket, "data");
  for (const key of keys) {
    socket.write(key);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const timer = setTimeout(() => socket.destroy(new Error("not detached")), patient(20_000));
  try {
    await ended;
    return true;
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

test("commands into the containers of tasks have a stock manager's exit status and output", async (t) => {
  t.timeout(patient(300_000));
  const { ours, stock } = await sides(t);
  const both = async (run: (side: Side) => Promise<unknown>): Promise<unknown> => {
    const [expected, found] = [await run(stock), await run(ours)];
    t.deepEqual(found, expected);
    return found;
  };
  const exec =
    (flags: readonly string[], words: readonly string[], input = "") =>
    ({ container, socket }: Side): Promise<Ran> =>
      docker(socket, ["exec", ...flags, container, ...words], input);

  t.deepEqual(await both(exec([], ["sh", "-c", "echo out; echo err >&2; exit 3"])), {
    status: 3,
    out: "out\n",
    err: "err\n",
  });
  t.deepEqual(await both(exec(["-i"], ["cat"], "typed\n")), { status: 0, out: "typed\n", err: "" });
  // More than every buffer between the two ends.
  const much = "0123456789abcdef".repeat(256 * 1_024);
  t.is(((await both(exec(["-i"], ["sh", "-c", "cat >/dev/null"], much))) as Ran).status, 0);
  t.is(((await both(exec(["-i"], ["cat"], much))) as Ran).out, much);
  await both(exec(["-d"], ["sh", "-c", "echo >/detached"]));
  await both(async (side) => {
    await until(
      "the detached command",
      async () => (await exec([], ["sh", "-c", "test -e /detached"])(side)).status === 0,
    );
    return "made";
  });
  await both(exec([], ["sh", "-c", "kill -TERM $$"]));
  await both(exec([], ["/absent"]));
  const failing = (await both(exec(["-d"], ["/absent"]))) as Ran;
  t.is(failing.status, 1);
  await both(exec(["-d", "-u", "nobody2"], ["true"]));
  await both(exec(["-d"], ["sh", "-c", "exit 3"]));
  for (const wish of [{ Cmd: ["/absent"] }, { Cmd: ["/etc"] }, { Cmd: ["true"], User: "nobody2" }])
    await both(async ({ container, socket }) => {
      const post = (path: string, body: object) =>
        ask(socket, { method: "POST", path: `/v1.41${path}`, body: JSON.stringify(body) });
      const { Id: id } = JSON.parse((await post(`/containers/${container}/exec`, wish)).text) as {
        readonly Id: string;
      };
      return post(`/exec/${id}/start`, { Detach: true });
    });

  const report = ["sh", "-c", "echo $(id -u):$(id -g) $(pwd) $HOME $A $B"];
  const identity = ["-u", "7:1234", "-w", "/bin", "-e", "A=1", "--env", "B=two words"];
  t.deepEqual(await both(exec(identity, report)), {
    status: 0,
    out: "7:1234 /bin / 1 two words\n",
    err: "",
  });
  await both(exec(["-i", "-u", "7"], ["sh", "-c", "cat; id -u"], "typed\n"));
  for (const flags of [
    ["-u", "nobody2"],
    ["-u", "7:no-such-group"],
    ["-u", "99999999999"],
    ["-w", "/absent"],
  ])
    await both(exec(flags, ["true"]));
  await both(async ({ container, socket }) => {
    const { out, status } = await typed(
      socket,
      ["exec", "-it", "-u", "7", "-e", "A=1", "-w", "/bin", container, "sh", "-c", "echo $(id -u) $A $TERM; pwd"],
      [],
    );
    return { out, status };
  });
  const effective = ["grep", "CapEff", "/proc/self/status"];
  const privileged = (await both(exec(["--privileged"], effective))) as Ran;
  t.not(privileged.out, ((await both(exec([], effective))) as Ran).out);
  await both(({ socket }) => docker(socket, ["exec", "absent", "true"]));
  await both(({ socket }) => docker(socket, ["top", "absent"]));
  await both(({ socket }) => docker(socket, ["attach", "absent"]));
  await both(({ socket }) => docker(socket, ["wait", "absent"]));
  await both(({ socket }) => docker(socket, ["kill", "absent"]));

  const inTerminal = (await both(async ({ container, socket }) => {
    const { out, status } = await typed(
      socket,
      ["exec", "-it", container, "sh"],
      [`${untilSized}; stty size; echo $((40 + 2))`, "exit 7"],
    );
    return { status, has: [/\n42\r/.test(out), /\n31 77\r/.test(out)] };
  })) as { readonly has: readonly boolean[] };
  t.deepEqual(inTerminal.has, [true, true]);

  const listed = await docker(ours.socket, ["top", ours.container]);
  t.regex(listed.out, /^PID +USER( +TIME)? +COMMAND *\n/);
  t.regex(listed.out, /sh -c echo begun/);
  t.notRegex(listed.out, / ps\s*\n/, "the command that lists is not listed");

  await both(async ({ container, socket }) => {
    const words = ["stats", "--no-stream", "--format", "{{.Name}} {{.CPUPerc}} {{.MemUsage}} {{.PIDs}}", container];
    const { err, out, status } = await docker(socket, words);
    const isWhole = /^web\.1\.\w+ \d+\.\d\d% [\d.]+[KM]iB \/ [\d.]+[GM]iB \d\n$/.test(out);
    return { status, err, shown: isWhole || out };
  });

  await both(async ({ socket }) => {
    const { out } = await docker(socket, ["system", "df", "--format", "{{.Type}} {{.TotalCount}} {{.Active}}"]);
    return out.split("\n").find((line) => line.startsWith("Containers"));
  });

  await withOpenInput(both);

  const attached = (await both(async ({ container, socket }) => {
    const attach = start(socket, ["attach", container]);
    const waiting = start(socket, ["wait", container]);
    await until("output at the attached client", () => attach.output().includes("tick\ntick\n"));
    const killed = await docker(socket, ["kill", container]);
    const { err, out, status } = await attach.ended;
    return {
      killed: { status: killed.status, err: killed.err },
      waited: (await waiting.ended).out,
      attached: { status, err, only: out.replaceAll("tick\n", "") },
    };
  })) as { readonly waited: string };
  t.is(attached.waited, "137\n");

  await both(async ({ container, socket }) => {
    const { err, status } = await docker(socket, ["exec", container, "true"]);
    return { status, err: err.replaceAll(/[0-9a-f]{64}/g, "ID") };
  });
  for (const path of ["top", "stats", "json"].map((each) => `/v1.41/containers/absent/${each}`))
    await both(({ socket }) => ask(socket, { method: "GET", path }));
});
