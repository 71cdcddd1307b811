//! A tool: what a client reads of it, and the function behind it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use futures_util::future::{BoxFuture, FutureExt};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    Toolset, Toolsets, arguments,
    call::Call,
    envelope::{Answer, ToolResult},
    schema::{self, JsonObject},
};

type Run = Box<dyn Fn(Call, Option<JsonObject>) -> BoxFuture<'static, ToolResult<Value>> + Send + Sync>;

/// One tool. Its arguments and its answer are types; their schemas are made from them. How an answer looks outside is
/// the surface's.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) toolset: Toolset,
    /// Shown in `core` too.
    pub(crate) is_core: bool,
    /// Shown whatever was chosen.
    is_always: bool,
    pub(crate) hints: Hints,
    pub(crate) input: Input,
    /// Returns the schema of the data that it answers.
    pub(super) data: fn() -> Value,
    pub(super) run: Run,
}

/// The schema of a tool's arguments, in three forms. A daemon keeps none but what arguments of tools that were called
/// are held against: all of them, as values, would take several MiB.
#[derive(Debug)]
pub(crate) struct Input {
    /// With marks.
    marked: fn() -> JsonObject,
    lists_older_names: bool,
    checked: Arc<OnceLock<Arc<JsonObject>>>,
}

impl Input {
    fn of<A: JsonSchema>() -> Self {
        Self { marked: schema::input::<A>, lists_older_names: false, checked: Arc::default() }
    }

    /// The schema that arguments are held against.
    pub(crate) fn checked(&self) -> &Arc<JsonObject> {
        self.checked.get_or_init(|| Arc::new(schema::checked((self.marked)())))
    }

    /// Returns it as it is listed in full.
    pub(crate) fn full(&self) -> JsonObject {
        let full = schema::full(&(self.marked)());
        if !self.lists_older_names {
            return full;
        }
        let mut all = JsonObject::clone(self.checked());
        if let Some(required) = full.get("required") {
            all.insert("required".to_owned(), required.clone());
        }
        all
    }

    /// Returns it as it is listed where space counts.
    pub(crate) fn brief(&self, sets: &Toolsets) -> JsonObject {
        schema::brief(&(self.marked)(), sets)
    }

    pub(crate) fn listed(&self, sets: &Toolsets) -> JsonObject {
        if sets.is_all() { self.full() } else { self.brief(sets) }
    }
}

/// The effect of a call on the world, as clients may show it to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) read_only: bool,
    pub(crate) destructive: bool,
    pub(crate) idempotent: bool,
}

impl Hints {
    pub(crate) const READS: Self = Self { read_only: true, destructive: false, idempotent: true };
    /// Looks only, and what it sees differs each time.
    pub(crate) const FOLLOWS: Self = Self { read_only: true, destructive: false, idempotent: false };
    pub(crate) const ADDS: Self = Self { read_only: false, destructive: false, idempotent: false };
    /// Changes something, and the same again changes nothing more.
    pub(crate) const SETS: Self = Self { read_only: false, destructive: false, idempotent: true };
    pub(crate) const DESTROYS: Self = Self { read_only: false, destructive: true, idempotent: true };
    /// Takes something away, and each time more.
    pub(crate) const DESTROYS_MORE: Self = Self { read_only: false, destructive: true, idempotent: false };
}

impl Tool {
    pub(crate) fn new<A, D, F>(
        toolset: Toolset,
        name: &'static str,
        title: &'static str,
        description: &'static str,
        hints: Hints,
        run: fn(Call, A) -> F,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        D: Serialize + JsonSchema + 'static,
        F: Future<Output = ToolResult<D>> + Send + 'static,
    {
        let input = Input::of::<A>();
        let checked = Arc::clone(&input.checked);
        let run: Run = Box::new(move |call, given| {
            let checked = checked.get_or_init(|| Arc::new(schema::checked(schema::input::<A>())));
            match arguments::parse::<A>(name, checked, given, call.surface.names()) {
                Ok(arguments) => run(call, arguments).map(|result| result.and_then(Answer::written)).boxed(),
                Err(failure) => std::future::ready(Err(failure)).boxed(),
            }
        });
        Self {
            name,
            title,
            description,
            toolset,
            is_core: false,
            is_always: false,
            hints,
            input,
            data: schema::of::<D>,
            run,
        }
    }

    /// Shows it in `core` as well.
    #[must_use]
    pub(crate) fn core(mut self) -> Self {
        self.is_core = true;
        self
    }

    /// Lists older names of parameters too, for clients that know those.
    #[must_use]
    pub(crate) fn with_older_names(mut self) -> Self {
        self.input.lists_older_names = true;
        self
    }

    /// Shows it in every choice: without it a client could not find the others.
    #[must_use]
    pub(crate) fn always(mut self) -> Self {
        self.is_always = true;
        self
    }

    pub(crate) fn is_shown(&self, sets: &Toolsets) -> bool {
        self.is_always || sets.contains(self.toolset) || (self.is_core && sets.contains(Toolset::Core))
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).field("toolset", &self.toolset).finish()
    }
}
