/** Numbers, sizes and times as short text. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)} %`;
}

export function duration(milliseconds: number | null | undefined): string {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** One unit only, as in a narrow column: `5 s`, `12 min`, `3 h`, `8 d`. */
export function shortDuration(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

export function clockTime(at: string | number): string {
  return new Date(at).toLocaleTimeString([], { hour12: false });
}

export function dateTime(at: string | number): string {
  return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hour12: false });
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}

/** A command as a person would type it in a shell. */
export function commandLine(command: readonly string[]): string {
  return command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** The command that a typed line stands for: plain words are started as they are, everything else is for a shell. */
export function commandOf(line: string): string[] {
  const words = line.trim().split(/ +/);
  const isPlain = /^[\w@%+=:,./ -]+$/.test(line) && !words[0]?.includes("=");
  return isPlain ? words : ["sh", "-c", line];
}
