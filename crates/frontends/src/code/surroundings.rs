//! Directory, environment and user of a context: those of whoever had it made.

use engine::{Engine, Principal, SandboxRef};
use sandbox::{CellSpec, ExecSpec};

/// Returns the hint for a caller who names them for code in a context that already exists: they are the context's own,
/// and stay. Asked before the code runs, because running it makes the context.
pub(crate) async fn ignored(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
    spec: &ExecSpec,
) -> Option<String> {
    let named: Vec<_> =
        [("cwd", spec.cwd.is_some()), ("env", !spec.env.is_empty()), ("user", spec.user.is_some())]
            .into_iter()
            .filter_map(|(field, is_given)| is_given.then_some(field))
            .collect();
    let context = spec.cell.as_ref().and_then(CellSpec::context).filter(|_| !named.is_empty())?;
    // A sandbox that cannot be asked has none.
    let contexts = engine.contexts(who, which).await.unwrap_or_default();
    contexts.iter().any(|known| known.name == context.as_str()).then(|| {
        format!(
            "No effect: {}. Context {context} already exists and keeps its own; change them in the code, or use another context.",
            named.join(", ")
        )
    })
}
