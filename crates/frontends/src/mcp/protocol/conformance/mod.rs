//! The server that the official conformance suite expects, behind our own transports: `warren serve --mcp-profile
//! conformance`. The suite is about the protocol, so its tools, resources and prompts say nothing about sandboxes.
#![expect(deprecated, reason = "the suite looks for log messages and sampling, which older revisions have")]

mod asking;
mod fixtures;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, model,
    service::{RequestContext, SubscriptionContext},
};
use serde_json::json;
use tokio::sync::broadcast;

use self::fixtures::Fixtures;
use super::{Profile, client::Client, handler::one_page};
use crate::mcp::Settings;

/// The suite wants to see that several messages come one after the other.
const PAUSE: Duration = Duration::from_millis(50);
/// Changes that a listener may be behind.
const CHANGES: usize = 16;

#[derive(Debug, Clone)]
pub(super) struct Conformance {
    settings: Arc<Settings>,
    changes: broadcast::Sender<Change>,
}

/// A change that a listener may hear of.
#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

impl Conformance {
    pub(super) fn new() -> Self {
        Self { settings: Arc::default(), changes: broadcast::Sender::new(CHANGES) }
    }
}

impl Profile for Conformance {
    type Handler = Handler;

    fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    fn handler(&self, _client: Client) -> Handler {
        Handler { changes: self.changes.clone(), followed: Mutex::default() }
    }

    fn fixed_list(&self) -> Option<&Bytes> {
        None
    }
}

#[derive(Debug)]
pub(super) struct Handler {
    changes: broadcast::Sender<Change>,
    followed: Mutex<HashSet<String>>,
}

type Context = RequestContext<RoleServer>;

impl Handler {
    async fn log(&self, context: &Context, text: &str) {
        let sent = context.peer.notify_logging_message(
            model::LoggingMessageNotificationParam::new(model::LoggingLevel::Info, json!(text))
                .with_logger("conformance"),
        );
        sent.await.ok();
    }

    async fn tell_progress(&self, context: &Context) {
        for done in [0.0, 50.0, 100.0] {
            if let Some(token) = context.meta.get_progress_token() {
                let note = model::ProgressNotificationParam::new(token, done).with_total(100.0);
                context.peer.notify_progress(note).await.ok();
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn tell_log(&self, context: &Context) {
        for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
            self.log(context, text).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn change(&self, change: Change) {
        // Nobody listening is fine.
        self.changes.send(change).ok();
    }
}

fn text(text: impl Into<String>) -> model::CallToolResult {
    model::CallToolResult::success(vec![model::ContentBlock::text(text)])
}

impl ServerHandler for Handler {
    fn get_info(&self) -> model::ServerConfig {
        let capabilities = model::ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let server = model::Implementation::new("warren-conformance", env!("CARGO_PKG_VERSION"));
        model::ServerConfig::new(capabilities).with_server_info(server)
    }

    async fn list_tools(
        &self,
        request: Option<model::PaginatedRequestParams>,
        _context: Context,
    ) -> Result<model::ListToolsResult, ErrorData> {
        one_page(request.as_ref())?;
        Ok(model::ListToolsResult::with_all_items(Fixtures::get().tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<model::Tool> {
        Fixtures::get().tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: model::CallToolRequestParams,
        context: Context,
    ) -> Result<model::CallToolResponse, ErrorData> {
        if let Some(result) = Fixtures::get().results.get(request.name.as_ref()) {
            let mut result = result.clone();
            result.result_type = Some(model::ResultType::COMPLETE);
            return Ok(result.into());
        }
        if let Some(response) = asking::answer(&request, &context).await? {
            return Ok(response);
        }
        match request.name.as_ref() {
            "test_tool_with_progress" => self.tell_progress(&context).await,
            "test_tool_with_logging" => self.tell_log(&context).await,
            "test_logging_tool" if context.meta.log_level().is_some() => self.log(&context, "hello").await,
            "test_logging_tool" => {}
            "test_reconnection" => tokio::time::sleep(PAUSE).await,
            "test_trigger_tool_change" => self.change(Change::Tools),
            "test_trigger_prompt_change" => self.change(Change::Prompts),
            name => return Err(ErrorData::invalid_params(format!("no tool {name:?}"), None)),
        }
        Ok(text("Done.").into())
    }

    async fn list_resources(
        &self,
        request: Option<model::PaginatedRequestParams>,
        _context: Context,
    ) -> Result<model::ListResourcesResult, ErrorData> {
        one_page(request.as_ref())?;
        Ok(model::ListResourcesResult::with_all_items(Fixtures::get().resources.clone()))
    }

    async fn list_resource_templates(
        &self,
        request: Option<model::PaginatedRequestParams>,
        _context: Context,
    ) -> Result<model::ListResourceTemplatesResult, ErrorData> {
        one_page(request.as_ref())?;
        Ok(model::ListResourceTemplatesResult::with_all_items(Fixtures::get().templates.clone()))
    }

    async fn read_resource(
        &self,
        request: model::ReadResourceRequestParams,
        _context: Context,
    ) -> Result<model::ReadResourceResponse, ErrorData> {
        let contents = Fixtures::get().contents(&request.uri).ok_or_else(|| {
            ErrorData::resource_not_found("no such resource", Some(json!({ "uri": request.uri })))
        })?;
        Ok(model::ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(
        &self,
        request: model::SubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: model::UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &model::SubscriptionFilter,
    ) -> Option<model::SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // The sink refuses changes that were not asked for.
            match change {
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await.ok(),
                Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await.ok(),
                Err(broadcast::error::RecvError::Lagged(_)) => None,
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }

    async fn list_prompts(
        &self,
        request: Option<model::PaginatedRequestParams>,
        _context: Context,
    ) -> Result<model::ListPromptsResult, ErrorData> {
        one_page(request.as_ref())?;
        Ok(model::ListPromptsResult::with_all_items(Fixtures::get().prompts.clone()))
    }

    async fn get_prompt(
        &self,
        request: model::GetPromptRequestParams,
        _context: Context,
    ) -> Result<model::GetPromptResponse, ErrorData> {
        if let Some(response) = asking::prompt(&request)? {
            return Ok(response);
        }
        let messages = Fixtures::get().messages(&request.name, request.arguments.as_ref())?;
        Ok(model::GetPromptResult::new(messages).into())
    }

    async fn complete(
        &self,
        request: model::CompleteRequestParams,
        _context: Context,
    ) -> Result<model::CompleteResult, ErrorData> {
        let known = ["paris", "park", "party", "test"].map(str::to_owned).into_iter();
        let values = known.filter(|word| word.starts_with(&request.argument.value)).collect();
        let info = model::CompletionInfo::with_all_values(values);
        Ok(model::CompleteResult::new(info.map_err(|error| ErrorData::internal_error(error, None))?))
    }

    async fn set_level(
        &self,
        _request: model::SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        if context.protocol_version().is_some_and(|version| version >= model::ProtocolVersion::V_2026_07_28) {
            return Err(ErrorData::method_not_found::<model::SetLevelRequestMethod>());
        }
        Ok(())
    }
}
