import { ApiError } from "../../../api/errors";
import { writeFile } from "../../../api/files";
import { join } from "../../../lib/paths";
import { plainLine } from "../../../lib/plain";
import { attempt } from "../../../state/toasts";

/** How many files were uploaded, and those whose names are taken. */
export type Uploaded = { count: number; taken: File[] };

/** Uploads files one after the other, and says which of them failed. */
export async function uploadAll(
  sandbox: string,
  directory: string,
  files: readonly File[],
  write: "createNew" | "replace",
): Promise<Uploaded> {
  const result: Uploaded = { count: 0, taken: [] };
  for (const file of files) {
    await attempt(`${plainLine(file.name)} not uploaded`, async () => {
      try {
        await writeFile(sandbox, join(directory, file.name), file, write);
        result.count += 1;
      } catch (error) {
        const isTaken = error instanceof ApiError && error.kind === "already_exists";
        if (!isTaken) throw error;
        result.taken.push(file);
      }
    });
  }
  return result;
}
