//! Pretended interpreters: contexts that keep variables, and cells that run in them one at a time.
//!
//! `bash` and `sh` are the toy shell; `python` is a few lines of [`python`]. The program `rich` writes records of any kind
//! ([`rich`]), in either. Nothing here is an interpreter: it is enough to test what stands around one.

mod python;
pub(super) mod rich;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use guest_protocol::{
    CellStart, ContextStart, ContextState, ContextSummary, ExecStart, Failure, FailureKind,
    InstalledLanguage, Request, Response, Rich, StartFailure, StateLoss,
};
use tokio::sync::{MutexGuard, watch};

use super::{
    commands::{self, Program, Refusal},
    exec::{Cause, Ended, Exec, SIGINT, SIGKILL},
    guest::{Guest, lock},
    instance::PROCESS_BYTES,
    shell,
};

const MAX_CONTEXTS: usize = 64;
/// Cells that may wait in one context.
const MAX_QUEUED: u32 = 64;
/// What is there in every simulated sandbox: name, program, and whether cells share variables.
const LANGUAGES: [(&str, &str, bool); 3] =
    [("python", "/usr/bin/python3", true), ("bash", "/bin/bash", true), ("sh", "/bin/sh", false)];
/// What a shell shows for an interrupt.
const INTERRUPTED: u8 = 130;
/// A variable of this name is a hazard to a fork.
const HAZARD: &str = "threads";

type Answer = Result<Response, Failure>;

/// The contexts of one sandbox, by name.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    by_name: Mutex<BTreeMap<String, Arc<Context>>>,
}

#[derive(Debug)]
struct Context {
    name: String,
    language: String,
    parent: Option<String>,
    /// What it began with, and begins with again.
    fresh: Variables,
    /// Held by the cell that runs; the others wait for it in order.
    state: tokio::sync::Mutex<Variables>,
    /// As they were when the last cell ended, for who looks without a turn.
    settled: Mutex<Variables>,
    running: Mutex<Option<Arc<Exec>>>,
    is_lost: std::sync::atomic::AtomicBool,
    is_removed: watch::Sender<bool>,
    n_cells: AtomicU64,
    n_queued: AtomicU32,
    pid: i32,
}

/// What cells of a context share.
#[derive(Debug, Clone)]
struct Variables {
    env: BTreeMap<String, String>,
    cwd: String,
}

fn failure(kind: FailureKind, message: String) -> Failure {
    Failure::new(kind, message)
}

fn language(name: &str) -> Option<(&'static str, &'static str, bool)> {
    LANGUAGES.into_iter().find(|(known, ..)| *known == name)
}

/// Says whether a cell can start: `Err` is a broken request, the inner one a cell that cannot start.
pub(super) fn check(
    guest: &Guest,
    start: &ExecStart,
    cell: &CellStart,
) -> Result<Result<(), Refusal>, Failure> {
    if !start.command.is_empty() {
        let message = format!("exec {} has code and a command", start.id);
        return Err(failure(FailureKind::InvalidRequest, message));
    }
    if let Err(refusal) = commands::check_place(guest, start)? {
        return Ok(Err(refusal));
    }
    Ok(match language(&cell.language) {
        Some(_) => Ok(()),
        None => Err((StartFailure::NotFound, format!("there is no interpreter for {}", cell.language))),
    })
}

impl Contexts {
    fn all(&self) -> Vec<Arc<Context>> {
        lock(&self.by_name).values().cloned().collect()
    }

    fn find(&self, name: &str) -> Result<Arc<Context>, Failure> {
        let unknown = || failure(FailureKind::NotFound, format!("no context {name}"));
        lock(&self.by_name).get(name).cloned().ok_or_else(unknown)
    }

    fn add(&self, context: Context) -> Result<Arc<Context>, Failure> {
        let mut by_name = lock(&self.by_name);
        if by_name.contains_key(&context.name) {
            let message = format!("a context {} exists already", context.name);
            return Err(failure(FailureKind::AlreadyExists, message));
        }
        if by_name.len() >= MAX_CONTEXTS {
            let message = format!("there are {MAX_CONTEXTS} contexts already");
            return Err(failure(FailureKind::LimitReached, message));
        }
        let context = Arc::new(context);
        by_name.insert(context.name.clone(), Arc::clone(&context));
        Ok(context)
    }

    /// The context of that name, made if it is not there.
    fn open(&self, guest: &Guest, start: &ContextStart) -> Result<Arc<Context>, Failure> {
        match self.find(&start.name) {
            Ok(context) if context.language != start.language => {
                let message = format!("context {} is one of {}", context.name, context.language);
                Err(failure(FailureKind::WrongState, message))
            }
            Ok(context) => Ok(context),
            Err(_none) => self.add(Context::new(guest, start, None)),
        }
    }
}

impl Context {
    fn new(guest: &Guest, start: &ContextStart, parent: Option<String>) -> Self {
        let variables = Variables { env: start.env.clone(), cwd: start.cwd.clone() };
        Self {
            name: start.name.clone(),
            language: start.language.clone(),
            parent,
            fresh: variables.clone(),
            state: tokio::sync::Mutex::new(variables.clone()),
            settled: Mutex::new(variables),
            running: Mutex::default(),
            is_lost: std::sync::atomic::AtomicBool::new(false),
            is_removed: watch::Sender::new(false),
            n_cells: AtomicU64::new(0),
            n_queued: AtomicU32::new(0),
            pid: guest.new_pid(),
        }
    }

    fn summary(&self) -> ContextSummary {
        let is_lost = self.is_lost.load(Ordering::SeqCst);
        let state = match (lock(&self.running).is_some(), is_lost) {
            (true, _) => ContextState::Busy,
            (false, true) => ContextState::Lost,
            (false, false) => ContextState::Idle,
        };
        ContextSummary {
            name: self.name.clone(),
            language: self.language.clone(),
            state,
            pid: (!is_lost).then_some(self.pid),
            cells: self.n_cells.load(Ordering::SeqCst),
            queued: self.n_queued.load(Ordering::SeqCst),
            cwd: lock(&self.settled).cwd.clone(),
            parent: self.parent.clone(),
            memory_bytes: PROCESS_BYTES,
        }
    }

    fn told(&self, warnings: Vec<String>) -> Answer {
        Ok(Response::Context { context: Box::new(self.summary()), warnings })
    }

    /// Variables are gone; the next cell begins anew.
    fn forget(&self, variables: &mut Variables) {
        variables.clone_from(&self.fresh);
        lock(&self.settled).clone_from(variables);
    }

    fn kill_running(&self) {
        if let Some(exec) = &*lock(&self.running) {
            exec.kill(Cause::Request);
        }
    }

    async fn removed(&self) {
        self.is_removed.subscribe().wait_for(|removed| *removed).await.map(drop).unwrap_or_default();
    }
}

/// Serves the requests about contexts; `None` for any other.
pub(super) async fn answer(guest: &Arc<Guest>, request: &Request) -> Option<Answer> {
    let contexts = &guest.contexts;
    Some(match request {
        Request::ContextCreate(start) => create(guest, start),
        Request::ContextList => Ok(Response::Contexts {
            contexts: contexts.all().iter().map(|context| context.summary()).collect(),
        }),
        Request::ContextReset { name } => match contexts.find(name) {
            Ok(context) => reset(&context).await,
            Err(failure) => Err(failure),
        },
        Request::ContextRemove { name } => contexts.find(name).map(|context| {
            lock(&contexts.by_name).remove(name);
            context.is_removed.send_replace(true);
            context.kill_running();
            Response::Done
        }),
        Request::ContextFork { name, into, force } => fork(guest, name, into, *force),
        Request::Languages { .. } => Ok(Response::Languages {
            languages: LANGUAGES
                .iter()
                .map(|(name, program, stateful)| InstalledLanguage {
                    name: (*name).to_owned(),
                    program: (*program).to_owned(),
                    stateful: *stateful,
                })
                .collect(),
        }),
        _ => return None,
    })
}

fn create(guest: &Guest, start: &ContextStart) -> Answer {
    match language(&start.language) {
        Some((.., true)) => guest.contexts.add(Context::new(guest, start, None))?.told(Vec::new()),
        _ => {
            let message = format!("there is no interpreter for {}", start.language);
            Err(failure(FailureKind::Unsupported, message))
        }
    }
}

async fn reset(context: &Context) -> Answer {
    context.kill_running();
    let mut variables = context.state.lock().await;
    context.forget(&mut variables);
    context.is_lost.store(false, Ordering::SeqCst);
    drop(variables);
    context.told(Vec::new())
}

fn fork(guest: &Guest, name: &str, into: &str, force: bool) -> Answer {
    let from = guest.contexts.find(name)?;
    if from.language != "python" {
        let message = format!("a context of {} cannot be forked", from.language);
        return Err(failure(FailureKind::Unsupported, message));
    }
    let Ok(variables) = from.state.try_lock() else {
        return Err(failure(FailureKind::WrongState, format!("context {name} is busy")));
    };
    let is_hazardous = variables.env.contains_key(&format!("{}{HAZARD}", python::PREFIX));
    if is_hazardous && !force {
        let message = format!("context {name} cannot be forked: it has threads, which a fork would not have");
        return Err(failure(FailureKind::WrongState, message));
    }
    let start = ContextStart {
        name: into.to_owned(),
        language: from.language.clone(),
        env: from.fresh.env.clone(),
        cwd: from.fresh.cwd.clone(),
        user: String::new(),
        rlimits: Vec::new(),
    };
    let mut branch = Context::new(guest, &start, Some(name.to_owned()));
    branch.state.get_mut().clone_from(&variables);
    lock(&branch.settled).clone_from(&variables);
    let made = guest.contexts.add(branch)?;
    made.told(
        is_hazardous.then(|| "Threads of the first are not in the second.".to_owned()).into_iter().collect(),
    )
}

/// How a cell ended, and what became of the variables.
struct Over {
    ended: Ended,
    lost: Option<StateLoss>,
    is_interrupted: bool,
}

impl Over {
    fn by_itself(ended: Ended) -> Self {
        let lost = matches!(ended, Ended::Signal(_)).then_some(StateLoss::Crashed);
        Self { ended, lost, is_interrupted: false }
    }

    fn interrupted() -> Self {
        Self { ended: Ended::Code(INTERRUPTED), lost: None, is_interrupted: true }
    }

    fn killed(is_interrupted: bool) -> Self {
        Self { ended: Ended::Signal(SIGKILL), lost: Some(StateLoss::Killed), is_interrupted }
    }
}

/// Runs a cell from its place in the queue to `Closed`, or to the end of the place.
pub(super) async fn run(guest: Arc<Guest>, exec: Arc<Exec>, start: ExecStart, cell: CellStart) {
    let life = async {
        let over = match open(&guest, &start, &cell) {
            Ok(Some(context)) => in_context(&guest, &exec, &start, &cell, &context).await,
            Ok(None) => {
                let mut variables = Variables { env: start.env.clone(), cwd: start.cwd.clone() };
                work(&guest, &exec, &start, &cell, &mut variables).await
            }
            Err(refused) => {
                exec.print(super::exec::Stream::Stderr, format!("{refused}\n").into()).await;
                Over::by_itself(Ended::Code(1))
            }
        };
        exec.exited(over.ended);
        exec.until(|state| state.n_children == 0).await;
        exec.closed();
    };
    tokio::select! {
        () = life => {}
        () = guest.ended() => {}
    }
}

fn open(guest: &Guest, start: &ExecStart, cell: &CellStart) -> Result<Option<Arc<Context>>, Failure> {
    let Some(name) = &cell.context else { return Ok(None) };
    let start = ContextStart {
        name: name.clone(),
        language: cell.language.clone(),
        env: start.env.clone(),
        cwd: start.cwd.clone(),
        user: start.user.clone(),
        rlimits: Vec::new(),
    };
    let context = guest.contexts.open(guest, &start)?;
    if context.n_queued.load(Ordering::SeqCst) >= MAX_QUEUED {
        let message = format!("{MAX_QUEUED} cells wait in context {name} already");
        return Err(failure(FailureKind::LimitReached, message));
    }
    Ok(Some(context))
}

async fn in_context(
    guest: &Arc<Guest>,
    exec: &Arc<Exec>,
    start: &ExecStart,
    cell: &CellStart,
    context: &Context,
) -> Over {
    context.n_queued.fetch_add(1, Ordering::SeqCst);
    let turn = wait_for_turn(exec, context).await;
    context.n_queued.fetch_sub(1, Ordering::SeqCst);
    let Some(mut variables) = turn else {
        exec.rich(&Rich::State { kept: true, lost: None, interrupted: true }).await;
        return Over::interrupted();
    };
    if context.is_lost.swap(false, Ordering::SeqCst) {
        let message = "The interpreter is a new one: the variables of earlier cells are gone.".to_owned();
        exec.rich(&Rich::Warning { message }).await;
    }
    *lock(&context.running) = Some(Arc::clone(exec));
    let over = work(guest, exec, start, cell, &mut variables).await;
    if over.lost.is_some() {
        context.forget(&mut variables);
        context.is_lost.store(true, Ordering::SeqCst);
    } else {
        lock(&context.settled).clone_from(&variables);
    }
    *lock(&context.running) = None;
    context.n_cells.fetch_add(1, Ordering::SeqCst);
    let (lost, interrupted) = (over.lost, over.is_interrupted);
    exec.rich(&Rich::State { kept: lost.is_none(), lost, interrupted }).await;
    over
}

/// `None`: it was signalled while it waited, or the context is gone, and never runs.
async fn wait_for_turn<'a>(exec: &Exec, context: &'a Context) -> Option<MutexGuard<'a, Variables>> {
    tokio::select! {
        biased;
        () = exec.until(|state| state.killed.is_some()) => None,
        () = context.removed() => None,
        turn = context.state.lock() => Some(turn),
    }
}

/// Runs the code to its end, its interrupt or its time limit.
async fn work(
    guest: &Arc<Guest>,
    exec: &Arc<Exec>,
    start: &ExecStart,
    cell: &CellStart,
    variables: &mut Variables,
) -> Over {
    let mut program = Program::of_cell(guest, exec, variables.env.clone(), variables.cwd.clone());
    let grace = Duration::from_millis(cell.grace_ms);
    let time_limit = async {
        match start.timeout_ms {
            Some(timeout_ms) => tokio::time::sleep(Duration::from_millis(timeout_ms)).await,
            None => std::future::pending().await,
        }
        exec.blame(Cause::TimeLimit);
        if exec.ignores(SIGINT) {
            tokio::time::sleep(grace).await;
            return Over::killed(true);
        }
        Over::interrupted()
    };
    let stubborn = async {
        exec.until(|state| state.n_interrupts > 0).await;
        tokio::time::sleep(grace).await;
        Over::killed(true)
    };
    let running = async {
        let ended = match cell.language.as_str() {
            "python" => python::run(&mut program, &cell.code).await,
            _ => shell::run_cell(&mut program, &cell.code).await,
        };
        Over::by_itself(ended)
    };
    let over = tokio::select! {
        biased;
        () = exec.until(|state| state.killed.is_some()) => match exec.state.borrow().killed {
            Some(SIGINT) => Over::interrupted(),
            _ => Over::killed(false),
        },
        over = time_limit => over,
        over = stubborn => over,
        over = running => over,
    };
    variables.env = program.env;
    variables.cwd = program.cwd;
    over
}
