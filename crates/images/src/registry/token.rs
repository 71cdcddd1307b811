//! Turns a challenge and a secret into an `Authorization` header.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{
    RequestBuilder, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;

use super::{
    Endpoint, Session,
    challenge::Challenge,
    client,
    credentials::{self, Secret},
};
use crate::{
    error::{Error, Result},
    options::Credentials,
};

/// Largest answer of a token service.
const MAX_TOKEN_BYTES: u64 = 256 * 1024;

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    pub(super) async fn authorize(&self, endpoint: &Endpoint, challenge: &Challenge) -> Result<HeaderValue> {
        self.authorize_for(endpoint, challenge, "pull").await
    }

    /// `actions` are what a token is asked for where the registry does not say itself.
    pub(super) async fn authorize_for(
        &self,
        endpoint: &Endpoint,
        challenge: &Challenge,
        actions: &str,
    ) -> Result<HeaderValue> {
        let what = format!("registry {}", endpoint.name);
        let secret = self.secret(endpoint).await?;
        match (challenge, secret) {
            (_, Some(Secret::Token(token))) => bearer(&what, &token),
            (Challenge::Basic, Some(Secret::Password(credentials))) => basic(&what, &credentials),
            (Challenge::Basic, _) => Err(Error::Unauthorized { what }),
            (Challenge::Bearer { realm, service, scope }, secret) => {
                let usual = || format!("repository:{}:{actions}", self.repository);
                let scope = scope.clone().unwrap_or_else(usual);
                let realm = self.realm(endpoint, realm)?;
                self.check(&realm, &what)?;
                let token = self.token(&what, realm, service.as_deref(), &scope, secret).await?;
                bearer(&what, &token)
            }
        }
    }

    async fn secret(&self, endpoint: &Endpoint) -> Result<Option<Secret>> {
        match &endpoint.secret {
            Some(secret) => Ok(Some(secret.clone())),
            None if !self.uses_login => Ok(None),
            None => credentials::find(&self.options.auth, &endpoint.name, self.timeouts().request).await,
        }
    }

    /// The registry names the token service. A secret for a registry with TLS is not sent to a service without it.
    fn realm(&self, endpoint: &Endpoint, realm: &str) -> Result<Url> {
        let url = Url::parse(realm).ok().filter(|url| match url.scheme() {
            "https" => true,
            "http" => endpoint.base.scheme() == "http",
            _ => false,
        });
        url.ok_or_else(|| Error::Unavailable {
            what: format!("registry {}", endpoint.name),
            why: "its token service has no address that can be used".to_owned(),
        })
    }

    async fn token(
        &self,
        what: &str,
        mut realm: Url,
        service: Option<&str>,
        scope: &str,
        secret: Option<Secret>,
    ) -> Result<String> {
        let request = match secret {
            Some(Secret::Identity(identity)) => self.exchange(realm, service, scope, &identity),
            other => {
                let mut query = realm.query_pairs_mut();
                query.append_pair("scope", scope);
                if let Some(service) = service {
                    query.append_pair("service", service);
                }
                drop(query);
                let request = self.client.get(realm);
                match other {
                    Some(Secret::Password(Credentials { username, password })) => {
                        request.basic_auth(username, Some(password))
                    }
                    _ => request,
                }
            }
        };
        let limit = self.timeouts().request;
        let answer = tokio::time::timeout(limit, self.answer(what, request))
            .await
            .map_err(|_elapsed| Error::TimedOut { what: what.to_owned(), after: limit })??;
        answer.token.or(answer.access_token).ok_or_else(|| bad_token(what))
    }

    fn exchange(&self, realm: Url, service: Option<&str>, scope: &str, identity: &str) -> RequestBuilder {
        let mut form = Url::clone(&realm);
        form.set_query(None);
        form.query_pairs_mut()
            .append_pair("grant_type", "refresh_token")
            .append_pair("client_id", "warren")
            .append_pair("service", service.unwrap_or_default())
            .append_pair("scope", scope)
            .append_pair("refresh_token", identity);
        let body = form.query().unwrap_or_default().to_owned();
        self.client.post(realm).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body)
    }

    async fn answer(&self, what: &str, request: RequestBuilder) -> Result<Answer> {
        let idle = self.timeouts().idle;
        let response = request.send().await.map_err(|error| client::failed(what, error, idle))?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(bad_token(what));
        }
        if response.status() != StatusCode::OK {
            return Err(client::refused(what, &response));
        }
        let body = client::body(what, response, MAX_TOKEN_BYTES, idle).await?;
        serde_json::from_slice(&body).ok().ok_or_else(|| bad_token(what))
    }
}

fn bad_token(what: &str) -> Error {
    Error::Unavailable { what: what.to_owned(), why: "its token service gave no token".to_owned() }
}

fn basic(what: &str, credentials: &Credentials) -> Result<HeaderValue> {
    let pair = STANDARD.encode(format!("{}:{}", credentials.username, credentials.password));
    secret_header(what, &format!("Basic {pair}"))
}

fn bearer(what: &str, token: &str) -> Result<HeaderValue> {
    secret_header(what, &format!("Bearer {token}"))
}

/// A header that is never logged.
fn secret_header(what: &str, text: &str) -> Result<HeaderValue> {
    let mut header = HeaderValue::from_str(text).ok().ok_or_else(|| bad_token(what))?;
    header.set_sensitive(true);
    Ok(header)
}
