//! The command that a sandbox is there for: its init, or what `warren run` started in it.

use frontends::rest::v1;
use sandbox::{ExecOutcome, RequestId};

use crate::{client::Client, output};

/// `warren run` starts its command under this request id, by which `logs` and `wait` know it again.
const RUN: &str = "warren-run";
/// The request id of its second try, with `python3` in place of `python`.
const RUN_AGAIN: &str = "warren-run-again";

pub(super) fn first_request() -> Option<RequestId> {
    RUN.parse().ok()
}

pub(super) fn second_request() -> Option<RequestId> {
    RUN_AGAIN.parse().ok()
}

/// The newest exec of that command; none for a sandbox that was made without one.
pub(super) fn of<'a>(sandbox: &v1::Sandbox, execs: &'a [v1::Exec]) -> Option<&'a v1::Exec> {
    let init = sandbox.init.as_ref().map(|init| init.exec().command);
    // The daemon starts an init by itself, so its runs have no asker.
    let is_init = |exec: &&v1::Exec| exec.asked_by.is_none() && init.as_ref() == Some(&exec.command);
    execs.iter().rfind(is_init).or_else(|| of_run(execs))
}

fn of_run(execs: &[v1::Exec]) -> Option<&v1::Exec> {
    let is_of_run =
        |exec: &&v1::Exec| exec.request_id.as_ref().is_some_and(|id| [RUN, RUN_AGAIN].contains(&id.as_str()));
    execs.iter().rfind(is_of_run)
}

/// After a start: what `warren run` had started ended with the sandbox, and only an init begins again.
pub(super) async fn note_if_not_begun_again(client: &Client, sandbox: &v1::Sandbox) {
    if sandbox.init.is_some() {
        return;
    }
    let Ok(execs) = client.execs(sandbox.id.as_str()).await else { return };
    let Some(exec) = of_run(&execs) else { return };
    if matches!(exec.outcome, Some(ExecOutcome::Killed { .. })) && !exec.terminal {
        let (name, command) = (&sandbox.name, exec.command.join(" "));
        output::note(&format!(
            "`{}` does not run again by itself in {name}: start it with `warren exec -d {name} COMMAND`, or make the \
             sandbox with --init, which begins with every start",
            output::printable(&command)
        ));
    }
}
