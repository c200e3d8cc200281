// Messages to the service manager, received on a socket as systemd would.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { serviceManager } from "../../processes/service-manager.ts";
import { until } from "../fixtures/until.ts";

/** Node cannot receive datagrams of Unix sockets either. Prints each message on a line; variables are joined by `;`. */
const receiver = `
use Socket;
socket(S, AF_UNIX, SOCK_DGRAM, 0) or die; bind(S, sockaddr_un($ARGV[0])) or die;
$| = 1; print "bound\\n";
while (defined recv(S, $m, 4096, 0)) { $m =~ s/\\n/;/g; print "$m\\n" }
`;

const has = (name: string): boolean => spawnSync("sh", ["-c", `command -v ${name}`]).status === 0;
const missing = ["perl", "systemd-notify"].find((name) => !has(name));

(missing === undefined ? test : test.skip)(
  "a service manager hears of the start, of life and of the end",
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "muster-notify-"));
    const socket = join(folder, "socket");
    const child = spawn("perl", ["-e", receiver, socket], { stdio: ["ignore", "pipe", "inherit"] });
    t.teardown(() => {
      child.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    });
    let said = "";
    child.stdout.on("data", (bytes: Buffer) => (said += bytes.toString()));
    await until("the socket", () => said.includes("bound"));

    const errors: string[] = [];
    const log = { debug() {}, info() {}, warn() {}, error: (_: object, text: string) => void errors.push(text) };
    const environment: NodeJS.ProcessEnv = {
      PATH: process.env["PATH"],
      NOTIFY_SOCKET: socket,
      WATCHDOG_USEC: "150000",
      WATCHDOG_PID: String(process.pid),
    };
    const service = serviceManager(log, environment);
    t.deepEqual(Object.keys(environment), ["PATH"], "tasks cannot speak for the process");
    t.notRegex(said, /WATCHDOG/, "a start may take longer than the watchdog's limit");
    service.ready();
    await until("readiness", () => said.includes("READY=1;STATUS=Running\n"));
    await until("life", () => said.split("WATCHDOG=1\n").length > 3);
    service.stopping();
    await until("the end", () => said.includes("STOPPING=1;STATUS=Stopping\n"));
    t.deepEqual(errors, []);

    const other = serviceManager(log, { ...environment, NOTIFY_SOCKET: socket, PATH: folder });
    other.ready();
    other.stopping();
    await until("a complaint", () => errors.length > 0);
    t.deepEqual(errors, ["cannot run systemd-notify: the service manager does not learn that this process runs"]);
  },
);

test("without a service manager, nothing is sent", (t) => {
  const log = { debug() {}, info() {}, warn() {}, error: () => t.fail() };
  const service = serviceManager(log, { PATH: "/nowhere", WATCHDOG_USEC: "1" });
  service.ready();
  service.stopping();
  t.pass();
});
