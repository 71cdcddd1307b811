//! A surface: what one sort of client is served. The native one is a value beside others, so one daemon can serve
//! several.

use std::{collections::HashMap, fmt};

use sandbox::{Error, ErrorKind};
use serde_json::Value;

use super::{
    Toolsets,
    arguments::Names,
    call::Call,
    envelope::{Answer, Envelope, Failure, Part, ToolResult},
    foreign, instructions,
    prompts::{self, Prompt},
    schema::{self, JsonObject},
    tool::Tool,
    tools,
    words::KnownTools,
};

/// A model pays for every byte of output, and finds the rest with the call that the hint names.
const NATIVE_MAX_OUTPUT_BYTES: u64 = 24 * 1024;
/// The longest text that programs expect when they read answers.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;

/// How answers and failures look on a surface.
pub(crate) trait Form: fmt::Debug + Send + Sync {
    /// The schema of answers whose data has this one; `None` where answers are text only.
    fn schema(&self, data: &Value) -> Option<JsonObject>;
    fn answer(&self, answer: Answer<Value>) -> Reply;
    /// `known`: the tools that the next step may be told with.
    fn failure(&self, tool: &str, failure: Failure, known: &KnownTools<'_>) -> Reply;
}

/// A reply as it goes out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// For models. Absent: the data, as JSON.
    pub(crate) text: Option<String>,
    /// For programs.
    pub(crate) data: Option<Value>,
    /// The parts that stand beside the text.
    pub(crate) parts: Vec<Part>,
    /// The code of a failure.
    pub(crate) error_code: Option<String>,
}

/// The tools, their names and their order, the look of their answers, and what a client is told beside them.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) manner: Manner,
    pub(crate) habits: Habits,
    form: Box<dyn Form>,
    tools: Vec<Tool>,
    /// The tools from this one on can be called, and are in no list.
    n_listed: usize,
    by_name: HashMap<&'static str, usize>,
    /// Whether it is Warren's own, whose models may bring their words from anywhere.
    is_native: bool,
}

/// The properties of a surface that a client is told besides its tools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// The name of the server.
    pub(crate) server: &'static str,
    pub(crate) instructions: Option<&'static str>,
    pub(crate) prompts: &'static [Prompt],
    /// URI schemes of the resources.
    pub(crate) schemes: &'static [&'static str],
    /// Only some tools are listed, as the client chooses. The clients of other systems know no such choice.
    pub(crate) has_toolsets: bool,
}

/// The defaults of calls that do not say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Longest text in one field of an answer.
    pub(crate) max_output_bytes: u64,
    /// An image that cannot be pulled is replaced by `host` where that has its interpreter.
    pub(crate) image_fallback: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self { max_output_bytes: MAX_OUTPUT_BYTES, image_fallback: false }
    }
}

impl Surface {
    /// Warren's own: every tool, each answer in the envelope.
    pub(crate) fn native() -> Self {
        let manner = Manner {
            server: "warren",
            instructions: Some(instructions::NATIVE),
            prompts: &prompts::NATIVE,
            schemes: &["warren", "microsandbox"],
            has_toolsets: true,
        };
        let habits = Habits { max_output_bytes: NATIVE_MAX_OUTPUT_BYTES, ..Habits::default() };
        let surface = Self::new(manner, Box::new(Envelope), tools::all()).with_habits(habits);
        Self { is_native: true, ..surface }
    }

    pub(crate) fn new(manner: Manner, form: Box<dyn Form>, tools: Vec<Tool>) -> Self {
        let mut surface = Self {
            manner,
            habits: Habits::default(),
            form,
            tools: Vec::new(),
            n_listed: tools.len(),
            by_name: HashMap::new(),
            is_native: false,
        };
        surface.add(tools);
        surface
    }

    #[must_use]
    pub(crate) fn with_habits(mut self, habits: Habits) -> Self {
        self.habits = habits;
        self
    }

    /// With further tools that are in no list.
    #[must_use]
    pub(crate) fn with_unlisted(mut self, tools: Vec<Tool>) -> Self {
        self.add(tools);
        self
    }

    fn add(&mut self, tools: Vec<Tool>) {
        for tool in tools {
            self.by_name.insert(tool.name, self.tools.len());
            self.tools.push(tool);
        }
    }

    pub(crate) fn listed(&self) -> impl Iterator<Item = &Tool> {
        self.tools().take(self.n_listed)
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).map(|index| &self.tools[*index])
    }

    /// Returns the schema of what a tool answers here. Its short form says only that there is an object with these
    /// members: whoever shows a list to a model does so for the input, and an answer explains itself.
    pub(crate) fn output_of(&self, tool: &Tool, sets: &Toolsets) -> Option<JsonObject> {
        let mut marked = self.form.schema(&(tool.data)())?;
        if sets.is_all() {
            return Some(schema::full(&marked));
        }
        marked.retain(|key, _| key == "type" || key == "required");
        Some(marked)
    }

    pub(crate) fn shown<'a>(&'a self, sets: &'a Toolsets) -> impl Iterator<Item = &'a Tool> {
        self.listed().filter(|tool| !self.manner.has_toolsets || tool.is_shown(sets))
    }

    /// Calls a tool, shown or not. Whatever goes wrong is in the reply.
    pub(crate) async fn call(&self, name: &str, call: Call, arguments: Option<JsonObject>) -> Reply {
        let known = KnownTools::of(&call, self);
        match self.run(name, call, arguments).await {
            Ok(answer) => self.form.answer(answer),
            Err(failure) => self.form.failure(name, failure, &known),
        }
    }

    /// The same, before it is given the surface's form.
    pub(crate) async fn run(
        &self,
        name: &str,
        call: Call,
        arguments: Option<JsonObject>,
    ) -> ToolResult<Value> {
        let Some(tool) = self.find(name) else { return Err(self.no_such_tool(name, arguments)) };
        // The engine refuses changes. A call that happens to change nothing would get through, so the tool's kind
        // decides.
        if !tool.hints.read_only {
            call.who.may_change()?;
        }
        (tool.run)(call, arguments).await
    }

    /// A call that failed before its tool was reached.
    pub(crate) fn failed(&self, tool: &str, failure: Failure) -> Reply {
        self.form.failure(tool, failure, &KnownTools::all(self))
    }

    /// Returns the names of arguments that are taken here. Clients of other systems know the names of theirs.
    pub(crate) fn names(&self) -> Names {
        if self.is_native { Names::Aliases } else { Names::Own }
    }

    fn no_such_tool(&self, name: &str, arguments: Option<JsonObject>) -> Failure {
        let shown: String = name.chars().take(64).collect();
        let failure = Failure::from(Error::new(ErrorKind::NotFound, format!("no tool {shown:?}")));
        let right_call = self.is_native.then(|| foreign::translate(self, name, arguments)).flatten();
        if let Some(right_call) = right_call {
            return right_call.told(failure);
        }
        let lister = if self.manner.has_toolsets { "toolset_list" } else { "tools/list" };
        failure.with_hint(match foreign::nearest_tool(name, self.tools().map(|tool| tool.name)) {
            Some(known) => format!("Did you mean {known}? {lister} shows every tool."),
            None => format!("Call {lister} to see every tool."),
        })
    }
}

#[cfg(test)]
mod tests {
    use engine::{Access, Principal};
    use serde_json::json;

    use super::*;
    use crate::mcp::{
        testing::{Client, native},
        tool::Hints,
    };

    #[tokio::test]
    async fn whoever_may_only_look_is_refused_before_a_tool_that_changes_looks_at_anything() {
        let mut client = Client::new().await;
        client.data("sandbox_create", json!({ "name": "box" })).await;
        client.call.who = Principal { access: Access::ReadOnly, ..Principal::developer("reader") };
        for tool in native().tools().filter(|tool| !tool.hints.read_only) {
            client.error(tool.name, json!({}), "denied").await;
        }
        // Nothing would change, and it is refused all the same.
        client.error("sandbox_start", json!({ "name": "box" }), "denied").await;
        client.data("toolset_enable", json!({ "toolsets": ["all"] })).await;
    }

    #[test]
    fn names_are_unique_and_plain() {
        let surface = native();
        assert_eq!(surface.by_name.len(), surface.tools.len());
        for tool in surface.tools() {
            assert!(tool.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", tool.name);
            assert!(tool.description.ends_with('.'), "{}: {}", tool.name, tool.description);
        }
    }

    /// Text only, and failures as one line.
    #[derive(Debug)]
    struct Plain;

    impl Form for Plain {
        fn schema(&self, _data: &Value) -> Option<JsonObject> {
            None
        }

        fn answer(&self, answer: Answer<Value>) -> Reply {
            let text = answer.data.as_str().map(str::to_owned);
            Reply { text, data: None, parts: answer.parts, error_code: None }
        }

        fn failure(&self, _tool: &str, failure: Failure, _known: &KnownTools<'_>) -> Reply {
            let told = failure.worded(|_error| None);
            let text = Some(format!("Error: {}", told.message));
            Reply { text, data: None, parts: Vec::new(), error_code: Some(told.code.to_owned()) }
        }
    }

    #[tokio::test]
    async fn two_surfaces_are_served_side_by_side_each_in_its_own_form() {
        async fn shout(call: Call, arguments: JsonText) -> ToolResult<String> {
            // The same engine is behind both.
            call.sandbox(&arguments.text)?;
            Ok(Answer::new(arguments.text.to_uppercase()))
        }
        let tool =
            Tool::new(crate::mcp::Toolset::Core, "shout", "Shout", "Say it louder.", Hints::READS, shout);
        let manner = Manner {
            server: "shouts",
            instructions: Some("Shout."),
            prompts: &[],
            schemes: &[],
            has_toolsets: true,
        };
        let plain = Surface::new(manner, Box::new(Plain), vec![tool]);
        let client = Client::new().await;
        let call = async |surface: &Surface, name: &str, arguments: Value| {
            surface.call(name, client.call.clone(), arguments.as_object().cloned()).await
        };
        let loud = call(&plain, "shout", json!({ "text": "hello" })).await;
        assert_eq!((loud.text.as_deref(), loud.data, loud.error_code), (Some("HELLO"), None, None));
        let has_schema = |surface: &Surface, name| {
            surface.output_of(surface.find(name).unwrap(), &Toolsets::all()).is_some()
        };
        assert!(!has_schema(&plain, "shout") && has_schema(native(), "sandbox_list"));
        let refused = call(&plain, "sandbox_list", json!({})).await;
        assert_eq!(refused.text.as_deref(), Some("Error: no tool \"sandbox_list\""));
        assert_eq!(refused.error_code.as_deref(), Some("not_found"));
        let listed = call(native(), "sandbox_list", json!({})).await;
        assert_eq!((listed.text, listed.data.unwrap()["ok"].clone()), (None, json!(true)));
        let unknown = call(native(), "shout", json!({ "text": "hello" })).await.data.unwrap();
        assert_eq!(unknown["error"]["code"], "not_found");
    }

    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    struct JsonText {
        text: String,
    }
}
