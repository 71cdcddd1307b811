//! Tools that need something from the client: older revisions let a server ask, the newest has it say so in its result.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use rmcp::{ErrorData, RoleServer, model, service::RequestContext};
use serde_json::Value;

use super::{fixtures::Fixtures, text};

type Context = RequestContext<RoleServer>;

/// Answers those tools that ask; nothing for the others.
pub(super) async fn answer(
    request: &model::CallToolRequestParams,
    context: &Context,
) -> Result<Option<model::CallToolResponse>, ErrorData> {
    let name = request.name.as_ref();
    if let Some(params) = Fixtures::get().elicitations.get(name) {
        return Ok(Some(elicit(with_message(params, request), context).await.into()));
    }
    let given = Given::of(request.input_responses.as_ref(), request.request_state.as_deref());
    let response = match name {
        "test_sampling" => sample(request, context).await.into(),
        "test_missing_capability" => need_sampling(context)?,
        "test_streaming_elicitation" | "test_input_required_result_elicitation" => {
            given.or_ask(&["user_name"], None)?
        }
        "test_input_required_result_sampling" => given.or_ask(&["capital_question"], None)?,
        "test_input_required_result_list_roots" => given.or_ask(&["client_roots"], None)?,
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            given.or_ask(&["confirm"], Some("confirm"))?
        }
        "test_input_required_result_multiple_inputs" => {
            given.or_ask(&["user_name", "greeting", "client_roots"], Some("three"))?
        }
        "test_input_required_result_multi_round" => given.two_rounds()?,
        "test_input_required_result_capabilities" => given.what_client_has(context)?,
        _ => return Ok(None),
    };
    Ok(Some(response))
}

pub(super) fn prompt(
    request: &model::GetPromptRequestParams,
) -> Result<Option<model::GetPromptResponse>, ErrorData> {
    if request.name != "test_input_required_result_prompt" {
        return Ok(None);
    }
    let given = Given::of(request.input_responses.as_ref(), request.request_state.as_deref());
    if !given.has(&["user_context"]) {
        return Ok(Some(ask(&["user_context"], None).into()));
    }
    let message = model::PromptMessage::new_text(model::Role::User, format!("Context: {}", given.words()));
    Ok(Some(model::GetPromptResult::new(vec![message]).into()))
}

/// The client's responses and the state that came with a request made again.
struct Given<'a> {
    responses: Option<&'a model::InputResponses>,
    state: Option<&'a str>,
}

impl<'a> Given<'a> {
    fn of(responses: Option<&'a model::InputResponses>, state: Option<&'a str>) -> Self {
        Self { responses, state }
    }

    fn has(&self, names: &[&str]) -> bool {
        let has =
            |name: &&str| self.responses.is_some_and(|all| all.get(*name).is_some_and(Value::is_object));
        names.iter().all(has)
    }

    fn words(&self) -> String {
        self.responses.map(|all| serde_json::json!(all).to_string()).unwrap_or_default()
    }

    /// Done if everything is there, and the state is what was handed out.
    fn or_ask(&self, names: &[&str], state: Option<&str>) -> Result<model::CallToolResponse, ErrorData> {
        if !self.has(names) {
            return Ok(ask(names, state).into());
        }
        match (state, self.state) {
            (None, _) => {}
            (Some(wanted), Some(given)) if seal(wanted) == given => {}
            (Some(_), _) => {
                return Err(ErrorData::invalid_params("requestState is not what was handed out", None));
            }
        }
        let word = if state.is_some() { "state-ok " } else { "" };
        Ok(text(format!("{word}{}", self.words())).into())
    }

    fn two_rounds(&self) -> Result<model::CallToolResponse, ErrorData> {
        match self.state {
            None => Ok(ask(&["step1"], Some("one")).into()),
            Some(state) if state == seal("one") && self.has(&["step1"]) => {
                Ok(ask(&["step2"], Some("two")).into())
            }
            Some(_) => self.or_ask(&["step2"], Some("two")),
        }
    }

    fn what_client_has(&self, context: &Context) -> Result<model::CallToolResponse, ErrorData> {
        let capabilities = context.client_capabilities().unwrap_or_default();
        let inputs = [
            ("user_name", capabilities.elicitation.is_some()),
            ("capital_question", capabilities.sampling.is_some()),
            ("client_roots", capabilities.roots.is_some()),
        ];
        let names: Vec<_> = inputs.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
        self.or_ask(&names, None)
    }
}

fn ask(names: &[&str], state: Option<&str>) -> model::InputRequiredResult {
    let inputs = &Fixtures::get().inputs;
    let found = names.iter().filter_map(|name| Some(((*name).to_owned(), inputs.get(*name)?.clone())));
    model::InputRequiredResult::new(Some(found.collect::<BTreeMap<_, _>>()), state.map(seal))
}

/// State that only this process can have made.
fn seal(state: &str) -> String {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    format!("{state}.{:016x}", KEY.hash_one(state))
}

fn need_sampling(context: &Context) -> Result<model::CallToolResponse, ErrorData> {
    let has_sampling = context.client_capabilities().is_some_and(|it| it.sampling.is_some());
    if has_sampling {
        return Ok(text("The client has a model.").into());
    }
    let needed = model::ClientCapabilities::builder().enable_sampling().build();
    Err(ErrorData::missing_required_client_capability(needed))
}

/// The tool's own message, where it takes one.
fn with_message(
    params: &model::ElicitRequestParams,
    request: &model::CallToolRequestParams,
) -> model::ElicitRequestParams {
    let mut params = params.clone();
    let given = request.arguments.as_ref().and_then(|arguments| arguments.get("message")?.as_str());
    if let (model::ElicitRequestParams::FormElicitationParams { message, .. }, Some(given)) =
        (&mut params, given)
    {
        given.clone_into(message);
    }
    params
}

async fn elicit(params: model::ElicitRequestParams, context: &Context) -> model::CallToolResult {
    match context.peer.create_elicitation(params).await {
        Ok(result) => {
            let content = result.content.map(|content| content.to_string()).unwrap_or_default();
            let action = serde_json::to_value(result.action).unwrap_or_default();
            let action = action.as_str().unwrap_or_default();
            text(format!("Elicitation completed: action={action}, content={content}"))
        }
        Err(error) => model::CallToolResult::error(vec![model::ContentBlock::text(error.to_string())]),
    }
}

async fn sample(request: &model::CallToolRequestParams, context: &Context) -> model::CallToolResult {
    let prompt = request.arguments.as_ref().and_then(|arguments| arguments.get("prompt")?.as_str());
    let message = model::SamplingMessage::user_text(prompt.unwrap_or_default());
    match context.peer.create_message(model::CreateMessageRequestParams::new(vec![message], 100)).await {
        Ok(result) => text(format!("LLM response: {}", serde_json::json!(result.message.content))),
        Err(error) => model::CallToolResult::error(vec![model::ContentBlock::text(error.to_string())]),
    }
}
