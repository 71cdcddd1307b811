//! A tool: what a client reads of it, and the function behind it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use futures_util::future::{BoxFuture, FutureExt};
use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Toolset, Toolsets,
    arguments::{self, nearest},
    call::Call,
    envelope::{Envelope, Failure, ToolResult},
    schema::{self, JsonObject},
    tools,
};

type Run = Box<dyn Fn(Call, Option<JsonObject>) -> BoxFuture<'static, Envelope> + Send + Sync>;

/// One tool. Its arguments and its answer are types; their schemas are made from them.
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
    pub(crate) output: Schemas,
    run: Run,
}

/// A schema in full, and as it is listed where space counts.
pub(crate) struct Schemas {
    pub(crate) full: Arc<JsonObject>,
    pub(crate) brief: Arc<JsonObject>,
}

impl Schemas {
    fn new(marked: JsonObject) -> Self {
        let brief = Arc::new(schema::brief(&marked));
        Self { full: Arc::new(schema::full(marked)), brief }
    }

    pub(crate) fn listed(&self, sets: &Toolsets) -> Arc<JsonObject> {
        Arc::clone(if sets.is_all() { &self.full } else { &self.brief })
    }
}

/// What a call does to the world, as clients may show it to people.
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
        let checked = Arc::clone(&input.full);
        let run: Run = Box::new(move |call, given| match arguments::parse::<A>(name, &checked, given) {
            Ok(arguments) => run(call, arguments).map(Envelope::of).boxed(),
            Err(failure) => std::future::ready(Envelope::failed(&failure)).boxed(),
        });
        let output = Schemas::new(schema::output::<D>());
        Self {
            name,
            title,
            description,
            toolset,
            is_core: false,
            is_always: false,
            hints,
            input,
            output,
            run,
        }
    }

    /// Shows it in `core` as well.
    #[must_use]
    pub(crate) fn core(mut self) -> Self {
        self.is_core = true;
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

/// All tools there are, in the order in which they are listed.
#[derive(Debug)]
pub(crate) struct Registry {
    tools: Vec<Tool>,
    by_name: HashMap<&'static str, usize>,
}

impl Registry {
    /// Made when first asked for: a daemon that no MCP client uses does not pay for it.
    pub(crate) fn get() -> &'static Self {
        static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new(tools::all()));
        &REGISTRY
    }

    fn new(tools: Vec<Tool>) -> Self {
        let by_name = tools.iter().enumerate().map(|(index, tool)| (tool.name, index)).collect();
        Self { tools, by_name }
    }

    pub(crate) fn all(&self) -> &[Tool] {
        &self.tools
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).map(|index| &self.tools[*index])
    }

    pub(crate) fn shown<'a>(&'a self, sets: &'a Toolsets) -> impl Iterator<Item = &'a Tool> {
        self.tools.iter().filter(|tool| tool.is_shown(sets))
    }

    /// Calls a tool, shown or not. Whatever goes wrong is in the envelope.
    pub(crate) async fn call(&self, name: &str, call: Call, arguments: Option<JsonObject>) -> Envelope {
        let Some(tool) = self.find(name) else { return Envelope::failed(&self.no_such_tool(name)) };
        // The engine refuses changes. A call that happens to change nothing would get through, so the tool's kind decides.
        if !tool.hints.read_only
            && let Err(error) = call.who.may_change()
        {
            return Envelope::failed(&error.into());
        }
        (tool.run)(call, arguments).await
    }

    fn no_such_tool(&self, name: &str) -> Failure {
        let shown: String = name.chars().take(64).collect();
        let failure = Failure::from(Error::new(ErrorKind::NotFound, format!("no tool {shown:?}")));
        failure.with_hint(match nearest(name, self.tools.iter().map(|tool| tool.name)) {
            Some(known) => format!("Did you mean {known}? toolset_list names every tool."),
            None => "Call toolset_list to see every tool.".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use engine::{Access, Principal};
    use serde_json::json;

    use super::*;
    use crate::mcp::testing::Client;

    #[tokio::test]
    async fn whoever_may_only_look_is_refused_before_a_tool_that_changes_looks_at_anything() {
        let mut client = Client::new().await;
        client.data("sandbox_create", json!({ "name": "box" })).await;
        client.call.who = Principal { access: Access::ReadOnly, ..Principal::developer("reader") };
        for tool in Registry::get().all().iter().filter(|tool| !tool.hints.read_only) {
            client.error(tool.name, json!({}), "denied").await;
        }
        // Nothing would change, and it is refused all the same.
        client.error("sandbox_start", json!({ "name": "box" }), "denied").await;
        client.data("toolset_enable", json!({ "toolsets": ["all"] })).await;
    }

    #[test]
    fn names_are_unique_and_plain() {
        let registry = Registry::get();
        assert_eq!(registry.by_name.len(), registry.tools.len());
        for tool in registry.all() {
            assert!(tool.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", tool.name);
            assert!(tool.description.ends_with('.'), "{}: {}", tool.name, tool.description);
        }
    }
}
