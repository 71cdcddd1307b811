import { dismiss, toasts } from "../state/toasts";

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast ${toast.tone}`}>
          <p>{toast.text}</p>
          {toast.action && (
            <button type="button" onClick={toast.action.run}>
              {toast.action.label}
            </button>
          )}
          <button type="button" class="close" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            ✕
          </button>
          {toast.action && <span class="time-left" style={{ animationDuration: `${toast.forMs}ms` }} />}
        </div>
      ))}
    </div>
  );
}
