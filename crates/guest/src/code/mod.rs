//! Code: cells, which are execs, and contexts, which are interpreters kept alive for them.
//!
//! Our driver runs in each interpreter and takes cells from a channel, descriptor 3 ([`channel`]). One task for each
//! context ([`task`]) turns the data from the channel and the interpreter's pipes into events of the running cell.
//! Everything in an interpreter belongs to the workload, its driver too: if it lies, falls silent or ends, it harms
//! only itself.

mod by_file;
mod cell;
mod channel;
mod context;
mod death;
mod drivers;
mod fork;
mod interpreter;
mod languages;
mod requests;
mod task;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use guest_protocol::{
    CellStart, ContextStart, ExecStart, Failure, FailureKind, Response, StartFailure, StateLoss,
};
use tokio::task::spawn_local;

pub(crate) use by_file::CELL_DIRECTORY;
pub(crate) use cell::CellPart;
pub(crate) use languages::found as languages;
pub(crate) use requests::{create, fork, list, remove, reset};

use self::{cell::Waiting, context::Context, drivers::Driver, task::Task};
use crate::{
    Guest,
    exec::{self, Ended, Exec, shown},
    limits::{MAX_CONTEXT_NAME_BYTES, MAX_CONTEXTS, MAX_QUEUED_CELLS, MAX_QUEUED_CODE_BYTES},
};

/// Every context of the sandbox.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    known: RefCell<BTreeMap<String, Rc<Context>>>,
    /// Bytes of code of all waiting cells.
    waiting_bytes: Cell<usize>,
}

impl Contexts {
    fn get(&self, name: &str) -> Option<Rc<Context>> {
        self.known.borrow().get(name).cloned()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Rc<Context>, Failure> {
        let unknown = || Failure::new(FailureKind::NotFound, format!("no context {}", shown(name)));
        self.get(name).ok_or_else(unknown)
    }

    fn all(&self) -> Vec<Rc<Context>> {
        self.known.borrow().values().cloned().collect()
    }

    fn add(&self, context: &Rc<Context>) -> Result<(), Failure> {
        let mut known = self.known.borrow_mut();
        let name = context.name();
        if name.is_empty() || name.len() > MAX_CONTEXT_NAME_BYTES {
            let message = format!("a context's name of {} bytes", name.len());
            return Err(Failure::new(FailureKind::InvalidRequest, message));
        }
        if known.contains_key(name) {
            let message = format!("there is a context {} already", shown(name));
            return Err(Failure::new(FailureKind::AlreadyExists, message));
        }
        if known.len() >= MAX_CONTEXTS {
            let message = format!("{MAX_CONTEXTS} contexts are there already; remove some");
            return Err(Failure::new(FailureKind::LimitReached, message));
        }
        known.insert(name.to_owned(), Rc::clone(context));
        Ok(())
    }

    fn forget(&self, context: &Rc<Context>) {
        let mut known = self.known.borrow_mut();
        if known.get(context.name()).is_some_and(|known| Rc::ptr_eq(known, context)) {
            known.remove(context.name());
        }
    }

    fn let_go(&self, waiting: &Waiting) {
        self.let_go_bytes(waiting.code.len());
    }

    fn let_go_bytes(&self, bytes: usize) {
        self.waiting_bytes.set(self.waiting_bytes.get().saturating_sub(bytes));
    }

    /// Records that a child was reaped.
    pub(crate) fn reaped(&self, pid: i32, ended: Ended, oom_kills: u64) {
        for context in self.all() {
            context.reaped(pid, ended, oom_kills);
        }
    }

    /// Whether this process is an interpreter.
    pub(crate) fn has_pid(&self, pid: i32) -> bool {
        self.known.borrow().values().any(|context| context.has_pid(pid))
    }

    /// The cell that each interpreter's session runs.
    pub(crate) fn by_session(&self) -> HashMap<i32, String> {
        self.known.borrow().values().filter_map(|context| context.session()).collect()
    }

    /// Kills every interpreter; waiting cells never run.
    pub(crate) fn kill_all(&self) {
        for context in self.all() {
            context.give_up_waiting();
            context.kill(StateLoss::Killed);
        }
    }

    pub(crate) fn terminate_all(&self, signals: &[i32]) {
        for context in self.all() {
            context.give_up_waiting();
            context.terminate(signals);
        }
    }
}

/// Makes a context and starts its task.
fn make(guest: &Rc<Guest>, driver: &'static Driver, start: ContextStart) -> Result<Rc<Context>, Failure> {
    let context = Rc::new(Context::new(guest, driver, start, None));
    guest.contexts.add(&context)?;
    spawn_local(Task::new(guest, &context).run());
    Ok(context)
}

/// Starts a cell: in its context, or by file if its language has none.
pub(crate) async fn start(
    guest: &Rc<Guest>,
    request: ExecStart,
    cell: CellStart,
) -> Result<Response, Failure> {
    check(&request, &cell)?;
    let refuse = |answer| Ok(guest.execs.refused(&request.id, answer));
    let Some((driver, kind)) = drivers::find(&cell.language) else {
        return match by_file::find(&cell.language) {
            Some(_) if cell.context.is_some() => Err(by_file::keeps_nothing(&cell.language)),
            Some(by_file) => by_file::start(guest, request, by_file, cell).await,
            None => refuse(by_file::unknown(&cell.language)),
        };
    };
    let name = cell.context.clone().unwrap_or_else(|| driver.language.to_owned());
    let context = match guest.contexts.get(&name) {
        Some(context) if context.driver.language != driver.language => {
            let (is, wanted) = (context.driver.language, driver.language);
            let message = format!("context {} runs {is}, not {wanted}", shown(&name));
            return refuse(exec::not_started(StartFailure::Other, message));
        }
        Some(context) => context,
        None => make(guest, driver, context_start(&request, name, driver))?,
    };
    let exec = enqueue(guest, &context, &request, kind, cell)?;
    Ok(exec.answer().await)
}

fn context_start(request: &ExecStart, name: String, driver: &Driver) -> ContextStart {
    ContextStart {
        name,
        language: driver.language.to_owned(),
        env: request.env.clone(),
        cwd: request.cwd.clone(),
        user: request.user.clone(),
        rlimits: request.rlimits.clone(),
    }
}

fn check(request: &ExecStart, cell: &CellStart) -> Result<(), Failure> {
    let invalid = |message: String| Err(Failure::new(FailureKind::InvalidRequest, message));
    let id = shown(&request.id);
    exec::check_id(&request.id)?;
    match () {
        () if !request.command.is_empty() => invalid(format!("exec {id} has both a command and a cell")),
        () if request.terminal.is_some() || request.stdin => {
            invalid(format!("cell {id} has no terminal and no stdin"))
        }
        () if request.timeout_ms == Some(0) => invalid(format!("the time limit of cell {id} is zero")),
        () if cell.code.contains('\0') => invalid(format!("the code of cell {id} contains a NUL byte")),
        () => Ok(()),
    }
}

fn enqueue(
    guest: &Rc<Guest>,
    context: &Rc<Context>,
    request: &ExecStart,
    kind: u8,
    cell: CellStart,
) -> Result<Rc<Exec>, Failure> {
    let (n_waiting, is_removed, pid) = context.queue_state();
    let bytes = guest.contexts.waiting_bytes.get() + cell.code.len();
    if n_waiting >= MAX_QUEUED_CELLS || bytes > MAX_QUEUED_CODE_BYTES {
        let message = format!("{n_waiting} cells wait in context {} already", context.name());
        return Err(Failure::new(FailureKind::LimitReached, message));
    }
    if is_removed {
        let message = format!("context {} is being removed", context.name());
        return Err(Failure::new(FailureKind::WrongState, message));
    }
    guest.contexts.waiting_bytes.set(bytes);
    let part = CellPart::new(context, request, &cell);
    let exec = Rc::new(Exec::of_cell(request.id.clone(), part));
    guest.execs.add(&exec);
    if let Some(pid) = pid {
        guest.execs.has_started(&exec, pid);
    }
    context.wait(Waiting { exec: Rc::clone(&exec), kind, code: cell.code });
    Ok(exec)
}
