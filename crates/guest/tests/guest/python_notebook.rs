//! Consecutive Python cells, for the tests of the driver.

use std::collections::BTreeMap;

use guest_protocol::{ExecStart, MimeBundle, Request, Response, Rich};

use crate::support::{Host, Ran, TestGuest, cell_in, exited};

/// Another Python to test: the directory of its `python3`.
const OTHER_PYTHON: &str = "TEST_PYTHON_DIR";

/// A guest with a single context that runs cell after cell.
pub(crate) struct Notebook {
    pub(crate) guest: TestGuest,
    n_cells: std::cell::Cell<u32>,
    env: BTreeMap<String, String>,
}

impl Notebook {
    pub(crate) fn new() -> Self {
        Self::with_env(&[])
    }

    pub(crate) fn with_env(env: &[(&str, &str)]) -> Self {
        let mut env: BTreeMap<String, String> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let path = "/usr/local/bin:/usr/bin:/bin";
        let path = std::env::var(OTHER_PYTHON).map_or(path.to_owned(), |other| format!("{other}:{path}"));
        env.entry("PATH".to_owned()).or_insert(path);
        Self { guest: TestGuest::start(), n_cells: std::cell::Cell::new(0), env }
    }

    pub(crate) fn start_in(&self, context: &str, code: &str) -> ExecStart {
        let number = self.n_cells.get() + 1;
        self.n_cells.set(number);
        let start = cell_in(&format!("cell-{number}"), context, "python", code);
        ExecStart { env: self.env.clone(), ..start }
    }

    pub(crate) fn start(&self, code: &str) -> ExecStart {
        self.start_in("python", code)
    }

    /// Runs a cell to its end, whatever that is.
    pub(crate) fn run(&self, code: &str) -> Ran {
        self.run_in("python", code)
    }

    pub(crate) fn run_in(&self, context: &str, code: &str) -> Ran {
        self.guest.connect().run_cell(&self.start_in(context, code))
    }

    /// Returns the output of a cell that must succeed.
    pub(crate) fn prints(&self, code: &str) -> String {
        self.prints_in("python", code)
    }

    pub(crate) fn prints_in(&self, context: &str, code: &str) -> String {
        let ran = self.run_in(context, code);
        assert_eq!((&ran.report, ran.is_kept()), (&exited(0), true), "{code}: {ran:?}");
        ran.stdout
    }

    /// The text of the value of a cell that must succeed.
    pub(crate) fn value(&self, code: &str) -> String {
        self.value_in("python", code)
    }

    pub(crate) fn value_in(&self, context: &str, code: &str) -> String {
        let ran = self.run_in(context, code);
        assert_eq!(ran.report, exited(0), "{code}: {ran:?}");
        text(ran.result().unwrap_or_else(|| panic!("{code} has no value: {ran:?}"))).to_owned()
    }

    /// The exception that ends a cell: its name, its message and its traceback.
    pub(crate) fn error(&self, code: &str) -> (String, String, String) {
        let ran = self.run(code);
        assert_eq!((&ran.report, ran.is_kept()), (&exited(1), true), "{code}: {ran:?}");
        ran.error().unwrap_or_else(|| panic!("{code} ended without an error: {ran:?}"))
    }

    /// Forks the notebook's context into one called `branch`; returns the warnings, or the refusal.
    pub(crate) fn fork(&self, force: bool) -> Result<Vec<String>, String> {
        self.fork_from("python", "branch", force)
    }

    pub(crate) fn fork_from(&self, name: &str, into: &str, force: bool) -> Result<Vec<String>, String> {
        let (name, into) = (name.to_owned(), into.to_owned());
        match self.guest.connect().ask(&Request::ContextFork { name, into, force }) {
            Ok(Response::Context { warnings, .. }) => Ok(warnings),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure.message),
        }
    }

    /// Begins a cell and waits until it has printed `ready`, on a connection that follows it.
    pub(crate) fn begin(&self, code: &str) -> (String, Host) {
        let start = self.start(code);
        let mut host = self.guest.connect();
        host.start(&start);
        host.attach(&start.id, 1);
        host.wait_for("ready");
        (start.id, host)
    }
}

impl Ran {
    pub(crate) fn result(&self) -> Option<&MimeBundle> {
        self.rich.iter().find_map(|record| match record {
            Rich::Result { data } => Some(data),
            _ => None,
        })
    }

    pub(crate) fn displays(&self) -> Vec<&MimeBundle> {
        let mut displays = vec![];
        for record in &self.rich {
            if let Rich::Display { data } = record {
                displays.push(data);
            }
        }
        displays
    }

    pub(crate) fn error(&self) -> Option<(String, String, String)> {
        self.rich.iter().find_map(|record| match record {
            Rich::Error { name, value, traceback } => Some((name.clone(), value.clone(), traceback.clone())),
            _ => None,
        })
    }
}

/// The plain text of a displayed value.
pub(crate) fn text(data: &MimeBundle) -> &str {
    data.get("text/plain").and_then(serde_json::Value::as_str).expect("no plain text")
}
