/** `--publish` and `--mount`, whose values are small languages of their own (Docker's). */
import {
  Driver,
  Mount,
  Mount_BindOptions,
  Mount_BindOptions_Propagation,
  Mount_TmpfsOptions,
  Mount_Type,
  Mount_VolumeOptions,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
} from "../proto/gen/messages.ts";
import { UsageError } from "./command.ts";
import { parseBytes, parseChoice, parseCount } from "./values.ts";

const protocols = { tcp: PortConfig_Protocol.TCP, udp: PortConfig_Protocol.UDP, sctp: PortConfig_Protocol.SCTP };
const publishModes = { ingress: PortConfig_PublishMode.INGRESS, host: PortConfig_PublishMode.HOST };

function portNumber(text: string, flag: string): number {
  const port = parseCount(text, flag);
  if (port < 0 || port > 65_535) throw new UsageError(`--${flag}: ${text} is not a port`);
  return port;
}

/** `a=b,c` as pairs; a key alone means `true`. */
function fieldsOf(value: string): readonly (readonly [string, string])[] {
  return value.split(",").map((field) => {
    const at = field.indexOf("=");
    return at < 0 ? [field.trim(), "true"] : [field.slice(0, at).trim(), field.slice(at + 1)];
  });
}

/** `8080:80[/tcp]`, `80`, or `mode=host,target=80,published=8080,protocol=tcp`. */
export function parsePublish(value: string, flag = "publish"): PortConfig {
  if (!value.includes("=")) {
    const match = /^(?:(\d+):)?(\d+)(?:\/(\w+))?$/.exec(value);
    if (match === null)
      throw new UsageError(`--${flag} takes PUBLISHED:TARGET or mode=…,target=…,published=…, not '${value}'`);
    return PortConfig.create({
      publishedPort: match[1] === undefined ? 0 : portNumber(match[1], flag),
      targetPort: portNumber(match[2] as string, flag),
      protocol: parseChoice((match[3] ?? "tcp").toLowerCase(), flag, protocols),
    });
  }
  const port: { -readonly [Key in keyof PortConfig]?: PortConfig[Key] } = {};
  for (const [key, field] of fieldsOf(value)) {
    if (key === "target") port.targetPort = portNumber(field, flag);
    else if (key === "published") port.publishedPort = portNumber(field, flag);
    else if (key === "protocol") port.protocol = parseChoice(field, flag, protocols);
    else if (key === "mode") port.publishMode = parseChoice(field, flag, publishModes);
    else throw new UsageError(`--${flag} knows target, published, protocol and mode, not '${key}'`);
  }
  if (port.targetPort === undefined) throw new UsageError(`--${flag} needs target=PORT`);
  return PortConfig.create(port);
}

const mountTypes = { bind: Mount_Type.BIND, volume: Mount_Type.VOLUME, tmpfs: Mount_Type.TMPFS };
const propagations = {
  rprivate: Mount_BindOptions_Propagation.RPRIVATE,
  private: Mount_BindOptions_Propagation.PRIVATE,
  rshared: Mount_BindOptions_Propagation.RSHARED,
  shared: Mount_BindOptions_Propagation.SHARED,
  rslave: Mount_BindOptions_Propagation.RSLAVE,
  slave: Mount_BindOptions_Propagation.SLAVE,
};

function truth(text: string, key: string): boolean {
  return parseChoice(text, `mount ${key}`, { true: true, "1": true, false: false, "0": false });
}

/** `type=bind,source=/a,target=/b,readonly` and the like. */
export function parseMount(value: string, flag = "mount"): Mount {
  const mount: { -readonly [Key in keyof Mount]?: Mount[Key] } = { type: Mount_Type.VOLUME };
  for (const [key, field] of fieldsOf(value)) {
    switch (key) {
      case "type":
        mount.type = parseChoice(field, flag, mountTypes);
        break;
      case "source":
      case "src":
        mount.source = field;
        break;
      case "target":
      case "destination":
      case "dst":
        mount.target = field;
        break;
      case "readonly":
      case "ro":
        mount.readonly = truth(field, key);
        break;
      case "bind-propagation":
        mount.bindOptions = Mount_BindOptions.create({ propagation: parseChoice(field, flag, propagations) });
        break;
      case "volume-nocopy":
        mount.volumeOptions = Mount_VolumeOptions.patch(mount.volumeOptions ?? Mount_VolumeOptions.create({}), {
          nocopy: truth(field, key),
        });
        break;
      case "volume-driver":
        mount.volumeOptions = Mount_VolumeOptions.patch(mount.volumeOptions ?? Mount_VolumeOptions.create({}), {
          driverConfig: Driver.create({ name: field }),
        });
        break;
      case "tmpfs-size":
        mount.tmpfsOptions = Mount_TmpfsOptions.patch(mount.tmpfsOptions ?? Mount_TmpfsOptions.create({}), {
          sizeBytes: parseBytes(field, flag),
        });
        break;
      case "tmpfs-mode":
        mount.tmpfsOptions = Mount_TmpfsOptions.patch(mount.tmpfsOptions ?? Mount_TmpfsOptions.create({}), {
          mode: Number.parseInt(field, 8),
        });
        break;
      default:
        throw new UsageError(`--${flag} does not know '${key}'`);
    }
  }
  if ((mount.target ?? "") === "") throw new UsageError(`--${flag} needs target=PATH`);
  if (mount.type === Mount_Type.BIND && (mount.source ?? "") === "")
    throw new UsageError(`--${flag}: a bind mount needs source=PATH`);
  return Mount.create(mount);
}
