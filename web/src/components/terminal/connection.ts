import { execPath } from "../../api/execs";
import { withQuery } from "../../api/client";
import { proof } from "../../api/proof";

export type TerminalState = "connecting" | "open" | "lost" | "ended";

type Handlers = {
  onOutput: (bytes: Uint8Array) => void;
  onState: (state: TerminalState) => void;
};

const FIRST_RETRY_MS = 300;
const MAX_RETRY_MS = 5_000;

/**
 * A terminal's bytes, both ways. Output is numbered by the ledger, so a broken connection goes on where it stopped:
 * nothing is lost and nothing comes twice.
 */
export class TerminalConnection {
  private socket: WebSocket | null = null;
  private retry: ReturnType<typeof setTimeout> | null = null;
  private retryMs = FIRST_RETRY_MS;
  private pending: number | null = null;
  private isClosed = false;
  private size: { cols: number; rows: number } | null = null;

  constructor(
    private readonly sandbox: string,
    private readonly exec: string,
    private next: number,
    private readonly handlers: Handlers,
  ) {
    this.open();
  }

  send(data: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(new TextEncoder().encode(data));
  }

  sendBytes(data: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(Uint8Array.from(data, (one) => one.charCodeAt(0)));
  }

  resize(cols: number, rows: number): void {
    this.size = { cols, rows };
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ resize: this.size }));
  }

  close(): void {
    this.isClosed = true;
    if (this.retry) clearTimeout(this.retry);
    this.socket?.close();
  }

  private open(): void {
    this.handlers.onState("connecting");
    const address = new URL(
      withQuery(execPath(this.sandbox, this.exec, "terminal"), { from: this.next }),
      location.href,
    );
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const half = proof();
    const socket = new WebSocket(address, ["warren.terminal.v1", ...(half ? [`warren.proof.${half}`] : [])]);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.retryMs = FIRST_RETRY_MS;
      this.handlers.onState("open");
      if (this.size) this.resize(this.size.cols, this.size.rows);
    };
    socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => this.take(event.data);
    socket.onclose = () => this.lost();
  }

  private take(message: string | ArrayBuffer): void {
    if (typeof message !== "string") {
      if (this.pending !== null) this.next = this.pending + 1;
      this.pending = null;
      this.handlers.onOutput(new Uint8Array(message));
      return;
    }
    const told = JSON.parse(message) as {
      number?: number;
      trimmed?: { through: number };
      exit?: unknown;
      error?: unknown;
    };
    if (told.number !== undefined) this.pending = told.number;
    // The ledger gave up the oldest output of a terminal that prints without end.
    if (told.trimmed) this.next = told.trimmed.through + 1;
    if (told.exit !== undefined || told.error !== undefined) {
      this.isClosed = true;
      this.handlers.onState("ended");
    }
  }

  private lost(): void {
    if (this.isClosed) return;
    this.handlers.onState("lost");
    this.retry = setTimeout(() => this.open(), this.retryMs);
    this.retryMs = Math.min(MAX_RETRY_MS, this.retryMs * 2);
  }
}
