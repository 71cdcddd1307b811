import type { Isolation, Sandbox } from "../api/types";

type Walls = Isolation["walls"];

const WORDS: Record<Walls, string> = {
  sharedKernel: "shared kernel",
  userSpaceKernel: "own kernel",
  virtualMachine: "virtual machine",
  pod: "pod",
  nothing: "no walls",
};

const SENTENCES: Record<Walls, string> = {
  sharedKernel:
    "The sandbox shares the host's kernel. Namespaces, a system call filter and dropped rights keep it apart; a fault in the kernel itself could break them.",
  userSpaceKernel:
    "The sandbox talks to gVisor, a kernel of its own in user space, and not to the host's kernel. A fault in the host's kernel is much harder to reach.",
  virtualMachine: "The sandbox is a small virtual machine with a kernel of its own, behind the processor's walls.",
  pod: "The sandbox is a pod of a cluster. The cluster's runtime decides how strong its walls are.",
  nothing: "The sandbox has no walls: its programs run on the host as they are. Use it only for code that you trust.",
};

const BY_BACKEND: Record<string, string> = {
  namespace: "shared kernel",
  oci: "shared kernel",
  gvisor: "own kernel",
  process: "no walls",
};

/** The walls in a word or two. */
export function wallsWord(sandbox: Sandbox): string {
  const walls = sandbox.isolation?.walls;
  if (walls) return WORDS[walls];
  return BY_BACKEND[sandbox.backend ?? ""] ?? "–";
}

export function wallsName(walls: Walls): string {
  return WORDS[walls];
}

export function wallsSentence(walls: Walls): string {
  return SENTENCES[walls];
}
