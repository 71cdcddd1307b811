import type { BackendKind, Preset, SandboxSpec } from "../../api/types";
import { readLines, readPairs } from "../../lib/pairs";
import { readSize } from "../../lib/sizes";

export type Form = Record<
  | "name"
  | "image"
  | "memory"
  | "cpus"
  | "disk"
  | "ttlMs"
  | "idleMs"
  | "secrets"
  | "preset"
  | "allow"
  | "backend"
  | "ports"
  | "volume"
  | "labels"
  | "env",
  string
>;

export const EMPTY_FORM: Form = {
  name: "",
  image: "host",
  memory: "",
  cpus: "",
  disk: "",
  ttlMs: "",
  idleMs: "",
  secrets: "",
  preset: "packages",
  allow: "",
  backend: "",
  ports: "",
  volume: "",
  labels: "",
  env: "",
};

/** The request that a form stands for, or what is wrong with it. */
export function specOf(form: Form): SandboxSpec | string {
  const memory = form.memory ? readSize(form.memory) : undefined;
  if (memory === null || memory === 0) return `Memory "${form.memory}" is not a size. Write it like 512m or 2g.`;
  const disk = form.disk ? readSize(form.disk) : undefined;
  if (disk === null || disk === 0) return `Disk "${form.disk}" is not a size. Write it like 10g.`;
  const cpus = form.cpus ? Number(form.cpus) : undefined;
  if (cpus !== undefined && !(cpus > 0)) return `CPUs "${form.cpus}" is not a number above 0.`;
  const ports = readLines(form.ports).map(Number);
  if (ports.some((port) => !Number.isInteger(port) || port < 1 || port > 65535))
    return "Ports are numbers from 1 to 65535.";
  return {
    ...(form.name.trim() && { name: form.name.trim() }),
    image: form.image.trim() || "host",
    ...(form.backend && { backend: form.backend as BackendKind }),
    limits: { ...(memory && { memory }), ...(disk && { disk }), ...(cpus && { cpus }) },
    lifetime: {
      ...(form.ttlMs && { ttlMs: Number(form.ttlMs) }),
      ...(form.idleMs && { idleMs: Number(form.idleMs) }),
    },
    ...(form.secrets.trim() && { secrets: readLines(form.secrets) }),
    network: { preset: form.preset as Preset, allow: readLines(form.allow) },
    labels: readPairs(form.labels),
    env: readPairs(form.env),
    // At any free port of the host.
    ports: ports.map((inside) => ({ inside, host: 0 })),
    mounts: form.volume ? [{ kind: "named", name: form.volume, guestPath: `/mnt/${form.volume}` }] : [],
  };
}
