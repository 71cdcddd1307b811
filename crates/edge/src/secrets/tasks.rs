//! The tasks that HTTP/2 needs beside that of its connection. They end with it.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use hyper::rt::Executor;
use tokio::task::JoinSet;

/// Starts tasks, for as long as its [`TasksEnd`] is there.
#[derive(Debug, Clone)]
pub(crate) struct Tasks(Arc<Mutex<Option<JoinSet<()>>>>);

/// Ends the tasks when it is dropped.
#[derive(Debug)]
pub(crate) struct TasksEnd(Tasks);

impl Tasks {
    pub(crate) fn new() -> (Self, TasksEnd) {
        let tasks = Self(Arc::new(Mutex::new(Some(JoinSet::new()))));
        (tasks.clone(), TasksEnd(tasks))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = &mut *tasks {
            // Those that are done would stay otherwise.
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }
}

impl Drop for TasksEnd {
    fn drop(&mut self) {
        let tasks = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(tasks);
    }
}
