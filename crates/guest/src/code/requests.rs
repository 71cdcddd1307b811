//! Requests on contexts.

use std::rc::Rc;

use guest_protocol::{ContextStart, Failure, FailureKind, Response};
use tokio::{sync::oneshot, time::timeout};

use super::{context::Context, drivers, fork::Order, make};
use crate::{Guest, exec::shown, limits::KILLED_GONE};

/// Makes a context and waits until its interpreter takes cells.
pub(crate) async fn create(guest: &Rc<Guest>, start: ContextStart) -> Result<Response, Failure> {
    if guest.is_stopping.get() {
        return Err(Failure::new(FailureKind::WrongState, "the sandbox is being stopped"));
    }
    let Some((driver, _)) = drivers::find(&start.language) else {
        let message = format!("{} is not a language that keeps state here", shown(&start.language));
        return Err(Failure::new(FailureKind::Unsupported, message));
    };
    if !start.cwd.starts_with('/') {
        let message = format!("the working directory {:?} is not an absolute path", shown(&start.cwd));
        return Err(Failure::new(FailureKind::InvalidRequest, message));
    }
    let context = make(guest, driver, start)?;
    context.want();
    let ready = context.ready().await;
    if ready.is_err() {
        // No caller knows it yet.
        end(&context).await;
    }
    ready?;
    Ok(told(&context, vec![]))
}

pub(crate) fn list(guest: &Guest) -> Response {
    Response::Contexts { contexts: guest.contexts.all().iter().map(|context| context.summary()).collect() }
}

/// Ends the interpreter; the next cell gets a fresh one.
pub(crate) async fn reset(guest: &Guest, name: &str) -> Result<Response, Failure> {
    let context = guest.contexts.find(name)?;
    context.reset();
    // One that cannot be killed now is reaped later.
    timeout(KILLED_GONE, context.without_interpreter()).await.ok();
    Ok(told(&context, vec![]))
}

/// Ends the context with every cell that runs or waits in it.
pub(crate) async fn remove(guest: &Guest, name: &str) -> Result<Response, Failure> {
    let context = guest.contexts.find(name)?;
    end(&context).await;
    Ok(Response::Done)
}

async fn end(context: &Context) {
    context.give_up_waiting();
    context.retire();
    timeout(KILLED_GONE, context.gone()).await.ok();
}

/// Branches a live interpreter, and waits until the new one accepts cells.
pub(crate) async fn fork(guest: &Guest, name: &str, into: String, force: bool) -> Result<Response, Failure> {
    let context = guest.contexts.find(name)?;
    let refused = |kind, message: String| Err(Failure::new(kind, message));
    if !context.driver.can_fork {
        let language = context.driver.language;
        return refused(FailureKind::Unsupported, format!("a context of {language} cannot be forked"));
    }
    if guest.contexts.find(&into).is_ok() {
        return refused(FailureKind::AlreadyExists, format!("there is a context {} already", shown(&into)));
    }
    let (answer, forked) = oneshot::channel();
    context.order_fork(Order { into, force, answer })?;
    let Ok(forked) = forked.await else {
        return refused(FailureKind::Internal, format!("the fork of context {} broke off", context.name()));
    };
    let (context, warnings) = forked?;
    context.ready().await?;
    Ok(told(&context, warnings))
}

fn told(context: &Context, warnings: Vec<String>) -> Response {
    Response::Context { context: Box::new(context.summary()), warnings }
}
