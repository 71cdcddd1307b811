//! From a request to a child's plan: all checks that can be made before a fork.

use std::{collections::BTreeMap, ffi::CString};

use guest_protocol::{ExecStart, Failure, FailureKind, Response, StartFailure};

use super::{rlimits, shown, user, user::User};
use crate::limits::{MAX_EXEC_ID_BYTES, MAX_TERMINAL_MODES};

/// Where programs are looked up if the exec's environment has no `PATH`.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A request that passed the checks.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) programs: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) user: User,
    pub(crate) rlimits: Vec<(u32, u64, u64)>,
}

/// Why a request is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The request itself is wrong.
    Invalid(Failure),
    /// The command could not start.
    NotStarted(Response),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Invalid(failure)
    }
}

pub(crate) fn not_started(reason: StartFailure, message: impl Into<String>) -> Response {
    Response::NotStarted { reason, message: message.into() }
}

pub(crate) fn command(request: &ExecStart, defaults: &[(u32, u64, u64)]) -> Result<Command, Refusal> {
    let invalid = |message: String| Failure::new(FailureKind::InvalidRequest, message);
    check_id(&request.id)?;
    let Some(program) = request.command.first().filter(|program| !program.is_empty()) else {
        return Err(invalid(format!("the command of exec {} is empty", shown(&request.id))).into());
    };
    if request.timeout_ms == Some(0) {
        return Err(invalid(format!("the time limit of exec {} is zero", shown(&request.id))).into());
    }
    if let Some(size) = request.terminal
        && (size.rows == 0 || size.cols == 0)
    {
        return Err(invalid(format!("a terminal of {} rows and {} columns", size.rows, size.cols)).into());
    }
    if request.terminal_modes.len() > MAX_TERMINAL_MODES {
        return Err(invalid(format!("{} modes of a terminal", request.terminal_modes.len())).into());
    }
    if !request.cwd.starts_with('/') {
        let shown = shown(&request.cwd);
        return Err(invalid(format!("the working directory {shown:?} is not an absolute path")).into());
    }
    let argv = request.command.iter().enumerate();
    let argv = argv.map(|(position, text)| c_string(text, &format!("argument {position}")));
    let argv = argv.collect::<Result<Vec<_>, _>>()?;
    let env = request.env.iter().map(|(name, value)| variable(name, value));
    let mut env = env.collect::<Result<Vec<_>, _>>()?;
    let cwd = c_string(&request.cwd, "the working directory")?;
    let rlimits = rlimits::decide(defaults, &request.rlimits)?;
    let programs = candidates(program, path_of(&request.env))?;
    let user = user::find(&request.user)
        .map_err(|message| Refusal::NotStarted(not_started(StartFailure::BadUser, message)))?;
    if !request.env.contains_key("HOME") {
        env.push(variable("HOME", &user::home(user.uid))?);
    }
    Ok(Command { programs, argv, env, cwd, user, rlimits })
}

pub(crate) fn check_id(id: &str) -> Result<(), Failure> {
    if id.is_empty() || id.len() > MAX_EXEC_ID_BYTES {
        let message = format!("an exec id of {} bytes", id.len());
        return Err(Failure::new(FailureKind::InvalidRequest, message));
    }
    Ok(())
}

pub(crate) fn path_of(env: &BTreeMap<String, String>) -> &str {
    env.get("PATH").map_or(DEFAULT_PATH, String::as_str)
}

fn c_string(text: &str, what: &str) -> Result<CString, Failure> {
    CString::new(text)
        .map_err(|_nul| Failure::new(FailureKind::InvalidRequest, format!("{what} contains a NUL byte")))
}

fn variable(name: &str, value: &str) -> Result<CString, Failure> {
    if name.is_empty() || name.contains('=') {
        let message = format!("{:?} is not a name for an environment variable", shown(name));
        return Err(Failure::new(FailureKind::InvalidRequest, message));
    }
    c_string(&format!("{name}={value}"), &format!("the variable {}", shown(name)))
}

/// The paths where `program` may be, in `execvp`'s order.
pub(crate) fn candidates(program: &str, path: &str) -> Result<Vec<CString>, Failure> {
    let what = "the program";
    if program.contains('/') {
        return Ok(vec![c_string(program, what)?]);
    }
    path.split(':')
        .map(|directory| match directory {
            "" => c_string(&format!("./{program}"), what),
            _ => c_string(&format!("{directory}/{program}"), what),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_along_the_path() {
        let check = |program: &str, path: &str, expected: &[&str]| {
            let found = candidates(program, path).unwrap();
            let found: Vec<_> = found.iter().map(|found| found.to_str().unwrap()).collect();
            assert_eq!(found, expected);
        };
        check("ls", "/usr/bin:/bin", &["/usr/bin/ls", "/bin/ls"]);
        check("ls", "/usr/bin:", &["/usr/bin/ls", "./ls"]);
        check("./ls", "/usr/bin", &["./ls"]);
        check("/bin/ls", "", &["/bin/ls"]);
    }

    #[test]
    fn malformed_requests_are_refused_before_any_fork() {
        let good = ExecStart {
            id: "e".into(),
            command: vec!["true".into()],
            cwd: "/".into(),
            user: "0:0".into(),
            ..ExecStart::default()
        };
        assert!(command(&good, &[]).is_ok());
        let check = |change: &dyn Fn(&mut ExecStart)| {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(matches!(command(&bad, &[]), Err(Refusal::Invalid(_))), "{bad:?}");
        };
        check(&|bad| bad.id = String::new());
        check(&|bad| bad.id = "x".repeat(1000));
        check(&|bad| bad.command = vec![]);
        check(&|bad| bad.command = vec![String::new()]);
        check(&|bad| bad.command = vec!["a\0b".into()]);
        check(&|bad| bad.command.push("a\0b".into()));
        check(&|bad| bad.cwd = "relative".into());
        check(&|bad| bad.cwd = String::new());
        check(&|bad| bad.timeout_ms = Some(0));
        check(&|bad| drop(bad.env.insert("A=B".into(), String::new())));
        check(&|bad| drop(bad.env.insert("A".into(), "\0".into())));
        check(&|bad| bad.terminal = Some(guest_protocol::TerminalSize { rows: 0, cols: 1 }));
        check(&|bad| bad.terminal_modes = vec![guest_protocol::TerminalMode { opcode: 53, value: 0 }; 257]);
    }
}
