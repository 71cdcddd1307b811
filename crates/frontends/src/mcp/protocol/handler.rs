//! From messages of the protocol to calls of ours.

use std::{borrow::Cow, collections::BTreeMap, pin::pin, sync::Arc, time::Instant};

use axum::http::request::Parts;
use engine::{CallRecord, Frontend};
use futures_util::{FutureExt, StreamExt, stream::SelectAll};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{self, ProtocolVersion},
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use serde_json::Value;
use tokio::sync::Notify;
use tracing::{Instrument as _, Span};

use super::{
    client::{Client, Way},
    convert, grants,
    listing::Lists,
    misshapen::{self, Misshapen},
    person::person,
    subscriptions::{MAX_SUBSCRIPTIONS, Subscriptions},
};
use crate::{
    mcp::{
        Mcp,
        call::{Call, Progress, Session},
        complete, instructions, prompts, resources,
        schema::JsonObject,
        surface::{Reply, Surface},
    },
    trace::{self, RequestSpan, TRACEPARENT},
};

/// The server's side of one client.
#[derive(Debug)]
pub(in crate::mcp) struct Handler {
    mcp: Mcp,
    surface: Arc<Surface>,
    lists: Arc<Lists>,
    client: Client,
    /// The list of tools is another one since.
    tools_changed: Notify,
    subscriptions: Subscriptions,
}

impl Handler {
    pub(super) fn new(mcp: Mcp, surface: Arc<Surface>, lists: Arc<Lists>, client: Client) -> Self {
        let (tools_changed, subscriptions) = (Notify::new(), Subscriptions::default());
        Self { mcp, surface, lists, client, tools_changed, subscriptions }
    }

    fn call(&self, context: &RequestContext<RoleServer>) -> Call {
        let client = &self.client;
        let session = match client.way {
            Way::Requests if is_stateless(context) => Session::stateless(),
            _ => client.session.clone(),
        };
        Call {
            mcp: self.mcp.clone(),
            surface: Arc::clone(&self.surface),
            who: client.who.clone(),
            settings: client.session.settings(&client.settings),
            namespace: client.namespace.clone(),
            base: client.base.clone(),
            session,
            cancelled: context.ct.clone(),
            progress: self.progress(context),
            person: person(client.way, is_stateless(context), context),
        }
    }

    /// A part of the trace that the caller names, else of the HTTP request that brought the call.
    fn span(&self, tool: &str, context: &RequestContext<RoleServer>) -> Span {
        let known = self.surface.find(tool).map_or("other", |_| tool);
        let outer = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<RequestSpan>());
        let caller = context.meta.get(TRACEPARENT).and_then(Value::as_str);
        trace::of_tool(known, outer, caller)
    }

    fn progress(&self, context: &RequestContext<RoleServer>) -> Progress {
        let Some(token) = context.meta.get_progress_token() else { return Progress::default() };
        if self.client.way == Way::SingleAnswers {
            return Progress::default();
        }
        let peer = context.peer.clone();
        Progress::new(move |step| {
            let mut note =
                model::ProgressNotificationParam::new(token.clone(), step.done).with_message(step.message);
            note.total = step.total;
            let peer = peer.clone();
            // A client that is gone hears of nothing.
            async move { peer.notify_progress(note).await.unwrap_or_default() }.boxed()
        })
    }

    /// Runs a tool to its end, or until it may run no longer. A caller whose connection is lost cancelled nothing: only
    /// a call that does no more than look ends with it.
    async fn run(&self, tool: &str, call: Call, arguments: Option<JsonObject>) -> Reply {
        let cancelled = call.cancelled.clone();
        let only_looks = self.surface.find(tool).is_some_and(|tool| tool.hints.read_only);
        let mut working = pin!(self.surface.call(tool, call, arguments));
        tokio::select! {
            reply = &mut working => reply,
            () = self.left() => {
                // Nobody waits any more, or may; the library would take its time to say so.
                cancelled.cancel();
                working.await
            }
            () = self.client.gone.cancelled(), if only_looks => {
                cancelled.cancel();
                working.await
            }
        }
    }

    /// Runs a tool. If it is refused a path of the host that the person at the client then allows, it is run again.
    async fn run_or_ask(
        &self,
        tool: &str,
        call: Call,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Reply {
        if is_stateless(context) || !grants::can_be_asked(&self.client, context) {
            return self.run(tool, call, arguments).await;
        }
        let reply = self.run(tool, call, arguments.clone()).await;
        match grants::ask(&self.client, &reply, context).await {
            true => self.run(tool, self.call(context), arguments).await,
            false => reply,
        }
    }

    async fn audit(&self, asked: Asked, reply: &Reply, context: &RequestContext<RoleServer>) {
        // A tool that does not exist has the name that the caller gave it.
        let known = self.surface.find(&asked.tool).map_or("other", |_| asked.tool.as_str());
        let (error, time) = (reply.error_code.as_deref(), asked.began.elapsed());
        self.mcp.engine().count_request(Frontend::Mcp, known, error, time);
        let client = context.client_info().filter(|client| !client.name.is_empty());
        let record = CallRecord {
            frontend: Frontend::Mcp,
            action: asked.tool,
            sandbox: asked.sandbox,
            namespace: self.client.namespace.clone(),
            outcome: reply.error_code.clone().map_or(Ok(()), Err),
            duration: asked.began.elapsed(),
            client: client.map(|client| format!("{}/{}", client.name, client.version)),
        };
        self.mcp.engine().record_call(&self.client.who, record).await;
    }

    /// Returns when the client's session is over, or its key counts no more.
    async fn left(&self) {
        tokio::select! {
            () = self.client.ended.cancelled() => {}
            () = self.mcp.engine().principal_ended(&self.client.who) => {}
        }
    }

    /// A call that the library could not read: its answer is in the envelope too, once it is clear which tool is meant.
    async fn call_misshapen(
        &self,
        params: Option<Value>,
        context: RequestContext<RoleServer>,
    ) -> Result<model::CallToolResult, ErrorData> {
        let is_legacy = !is_stateless(&context);
        let mut result = match misshapen::read(params)? {
            Misshapen::Readable(request) => match self.call_tool(*request, context).await? {
                model::CallToolResponse::Complete(result) => result,
                _ => return Err(ErrorData::internal_error("the tool did not answer", None)),
            },
            Misshapen::Failed { tool, failure } => {
                let reply = self.surface.failed(&tool, failure);
                self.audit(Asked::new(&tool, None), &reply, &context).await;
                convert::tool_result(reply, takes_links(&context))
            }
        };
        if is_legacy {
            // The library does so for results that it knows.
            result.result_type = None;
        }
        Ok(result)
    }

    async fn tell_of_tools(&self, context: &RequestContext<RoleServer>) {
        self.tools_changed.notify_waiters();
        // The newest revision has it sent only to those who listen.
        if !is_stateless(context) && self.client.way != Way::SingleAnswers {
            context.peer.notify_tool_list_changed().await.ok();
        }
    }
}

/// A tool call, for the audit.
struct Asked {
    tool: String,
    sandbox: Option<String>,
    began: Instant,
}

impl Asked {
    fn new(tool: &str, arguments: Option<&JsonObject>) -> Self {
        // Before the tool has read its arguments: by the names that its sandbox is given by.
        let keys = ["name", "sandbox", "sandbox_id", "sandbox_name", "sandboxId", "sandboxName"];
        let named = keys.into_iter().find_map(|key| arguments?.get(key)?.as_str());
        Self { tool: tool.to_owned(), sandbox: named.map(str::to_owned), began: Instant::now() }
    }
}

/// Whether the request is of a revision without sessions.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Links to resources are part of results since this revision.
fn takes_links(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2025_06_18)
}

/// Everything fits on one page, so nobody has a cursor of ours.
pub(super) fn one_page(request: Option<&model::PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor.as_deref()) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params("the cursor is unknown: lists have one page", None)),
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> model::ServerConfig {
        let capabilities = model::ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_completions()
            .build();
        let manner = &self.surface.manner;
        let server =
            model::Implementation::new(manner.server, env!("CARGO_PKG_VERSION")).with_title("Warren");
        let config = model::ServerConfig::new(capabilities).with_server_info(server);
        match manner.instructions {
            Some(instructions) => {
                let settings = &self.client.settings;
                config.with_instructions(instructions::filled(
                    instructions,
                    self.mcp.engine(),
                    settings,
                    &self.surface,
                ))
            }
            None => config,
        }
    }

    async fn on_initialized(&self, _context: NotificationContext<RoleServer>) {}

    async fn list_tools(
        &self,
        request: Option<model::PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<model::ListToolsResult, ErrorData> {
        one_page(request.as_ref())?;
        let shown = self.client.session.toolsets(&self.client.settings.toolsets);
        Ok(model::ListToolsResult::with_all_items(self.lists.tools(&self.surface, &shown).to_vec()))
    }

    /// The library only asks which parameters stand in headers, with each call: the schema that is kept says so, too.
    fn get_tool(&self, name: &str) -> Option<model::Tool> {
        let tool = self.surface.find(name)?;
        Some(model::Tool::new(tool.name, tool.description, Arc::clone(tool.input.checked())))
    }

    async fn call_tool(
        &self,
        request: model::CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<model::CallToolResponse, ErrorData> {
        let asked = Asked::new(&request.name, request.arguments.as_ref());
        let call = self.call(&context);
        let (session, chosen) = (call.session.clone(), &self.client.settings.toolsets);
        let before = session.toolsets(chosen);
        let span = self.span(&request.name, &context);
        let reply = match self.mcp.turns().take(&self.client.who) {
            Ok(_turn) => {
                let running = self.run_or_ask(&request.name, call, request.arguments, &context);
                running.instrument(span.clone()).await
            }
            Err(failure) => self.surface.failed(&request.name, failure),
        };
        if let Some(code) = &reply.error_code {
            span.record("error", code.as_str());
        }
        drop(span);
        self.audit(asked, &reply, &context).await;
        if session.toolsets(chosen) != before {
            self.tell_of_tools(&context).await;
        }
        Ok(convert::tool_result(reply, takes_links(&context)).into())
    }

    async fn list_resources(
        &self,
        request: Option<model::PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<model::ListResourcesResult, ErrorData> {
        one_page(request.as_ref())?;
        let entries = resources::list(&self.call(&context)).await;
        Ok(model::ListResourcesResult::with_all_items(entries.into_iter().map(convert::resource).collect()))
    }

    async fn list_resource_templates(
        &self,
        request: Option<model::PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<model::ListResourceTemplatesResult, ErrorData> {
        one_page(request.as_ref())?;
        let templates = resources::templates(&self.surface).into_iter().map(convert::template).collect();
        Ok(model::ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: model::ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<model::ReadResourceResponse, ErrorData> {
        let bodies = resources::read(&self.call(&context), &request.uri).await;
        let contents = bodies
            .map_err(|error| convert::resource_error(&request.uri, error))?
            .into_iter()
            .map(convert::contents);
        Ok(model::ReadResourceResult::new(contents.collect()).into())
    }

    async fn subscribe(
        &self,
        request: model::SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.client.way == Way::SingleAnswers {
            return Err(ErrorData::invalid_request(
                "a subscription needs a session: accept text/event-stream and initialize first",
                None,
            ));
        }
        let changes = resources::watch(&self.call(&context), &request.uri).await;
        let changes = changes.map_err(|error| convert::resource_error(&request.uri, error))?;
        self.subscriptions.add(request.uri, changes, context.peer)
    }

    async fn unsubscribe(
        &self,
        request: model::UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &model::SubscriptionFilter,
    ) -> Option<model::SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.truncate(MAX_SUBSCRIPTIONS);
        }
        // Which tools there are changes only where something remembers what was enabled.
        if self.client.way != Way::Connection {
            accepted.tools_list_changed = None;
        }
        accepted.prompts_list_changed = None;
        accepted.resources_list_changed = None;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let call = self.call(context.request_context());
        let uris = context.accepted().resource_subscriptions.clone().unwrap_or_default();
        let mut changes = SelectAll::new();
        for uri in uris {
            match resources::watch(&call, &uri).await {
                Ok(watched) => changes.push(watched.map(move |()| uri.clone()).boxed()),
                Err(error) => tracing::debug!("a subscription to nothing: {error}"),
            }
        }
        let sink = context.sink();
        loop {
            let sent = tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.left() => return Ok(()),
                () = self.client.gone.cancelled() => return Ok(()),
                () = self.tools_changed.notified(),
                    if context.accepted().tools_list_changed == Some(true) => sink.notify_tool_list_changed().await,
                Some(uri) = changes.next(), if !changes.is_empty() => sink.notify_resource_updated(uri).await,
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }

    async fn list_prompts(
        &self,
        request: Option<model::PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<model::ListPromptsResult, ErrorData> {
        one_page(request.as_ref())?;
        let prompts = prompts::list(self.surface.manner.prompts).into_iter().map(convert::prompt).collect();
        Ok(model::ListPromptsResult::with_all_items(prompts))
    }

    async fn get_prompt(
        &self,
        request: model::GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<model::GetPromptResponse, ErrorData> {
        let texts = prompts::get(self.surface.manner.prompts, &request.name, &texts(request.arguments)?);
        let messages = texts.map_err(convert::error)?.into_iter();
        let messages = messages.map(|text| model::PromptMessage::new_text(model::Role::User, text));
        Ok(model::GetPromptResult::new(messages.collect()).into())
    }

    async fn complete(
        &self,
        request: model::CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<model::CompleteResult, ErrorData> {
        let reference = match request.r#ref {
            model::Reference::Prompt(prompt) => complete::Reference::Prompt(prompt.name),
            model::Reference::Resource(resource) => complete::Reference::Resource(resource.uri),
            _ => return Ok(model::CompleteResult::default()),
        };
        let known = request.context.and_then(|context| context.arguments).unwrap_or_default();
        let known: BTreeMap<_, _> = known.into_iter().collect();
        let (call, argument) = (self.call(&context), request.argument);
        let values = complete::complete(&call, reference, &argument.name, &argument.value, &known).await;
        let mut values = values.map_err(convert::error)?;
        let n_all = values.len();
        values.truncate(model::CompletionInfo::MAX_VALUES);
        let has_more = n_all > values.len();
        let info = model::CompletionInfo::with_pagination(values, u32::try_from(n_all).ok(), has_more);
        let info = info.map_err(|message| ErrorData::internal_error(message, None))?;
        Ok(model::CompleteResult::new(info))
    }

    /// Handles requests that the library could not read, whatever the reason.
    async fn on_custom_request(
        &self,
        request: model::CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<model::CustomResult, ErrorData> {
        if request.method == misshapen::CALL {
            let result = self.call_misshapen(request.params, context).await?;
            let result = serde_json::to_value(result);
            let result = result.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            return Ok(model::CustomResult::new(result));
        }
        Err(misshapen::refusal(&request.method))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }
}

/// Arguments of a prompt are texts, all of them.
fn texts(arguments: Option<JsonObject>) -> Result<BTreeMap<String, String>, ErrorData> {
    let text = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        _ => Err(ErrorData::invalid_params(format!("the argument {name} is not a string"), None)),
    };
    arguments.unwrap_or_default().into_iter().map(text).collect()
}
