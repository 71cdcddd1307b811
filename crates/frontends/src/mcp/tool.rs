//! A tool: what a client reads of it, and the function behind it.

use std::{fmt, sync::Arc};

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
    pub(crate) input: Schemas,
    /// The schema of the data that it answers.
    pub(super) data: Value,
    pub(super) run: Run,
}

/// A schema to hold arguments against, as it is listed in full, and as it is listed where space counts.
#[derive(Debug)]
pub(crate) struct Schemas {
    pub(crate) checked: Arc<JsonObject>,
    pub(crate) full: Arc<JsonObject>,
    pub(crate) brief: Arc<JsonObject>,
}

impl Schemas {
    pub(super) fn new(marked: JsonObject) -> Self {
        let (full, brief) = (schema::full(&marked), schema::brief(&marked));
        Self { checked: Arc::new(schema::checked(marked)), full: Arc::new(full), brief: Arc::new(brief) }
    }

    /// Returns the schemas of answers: the short form says only that there is an object with these members. Whoever
    /// shows a list to a model does so for the input; an answer explains itself.
    pub(super) fn of_answers(marked: JsonObject) -> Self {
        let mut brief = marked.clone();
        brief.retain(|key, _| key == "type" || key == "required");
        Self { brief: Arc::new(brief), ..Self::new(marked) }
    }

    pub(crate) fn listed(&self, sets: &Toolsets) -> Arc<JsonObject> {
        Arc::clone(if sets.is_all() { &self.full } else { &self.brief })
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
        let input = Schemas::new(schema::input::<A>());
        let checked = Arc::clone(&input.checked);
        let run: Run = Box::new(move |call, given| {
            match arguments::parse::<A>(name, &checked, given, call.surface.names()) {
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
            data: schema::of::<D>(),
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
        let mut all = (*self.input.checked).clone();
        if let Some(required) = self.input.full.get("required") {
            all.insert("required".to_owned(), required.clone());
        }
        self.input.full = Arc::new(all);
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
