export const baseName = (path: string): string => path.split("/").filter(Boolean).at(-1) ?? "/";

export function parentOf(path: string): string {
  const parts = path.split("/").filter(Boolean).slice(0, -1);
  return `/${parts.join("/")}`;
}

export const join = (directory: string, name: string): string =>
  directory === "/" ? `/${name}` : `${directory}/${name}`;

/** The directories from the root down to a path, the path itself included. */
export function steps(path: string): string[] {
  const parts = path.split("/").filter(Boolean);
  return ["/", ...parts.map((_, index) => `/${parts.slice(0, index + 1).join("/")}`)];
}
