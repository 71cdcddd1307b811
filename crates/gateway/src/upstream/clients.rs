//! The HTTP clients, and which of them a request takes.

use std::time::Duration;

use downloads::{Guard, PublicOnly, Refused, check_name};
use reqwest::{Client, ClientBuilder, Proxy, redirect};
use url::Url;

use crate::{
    config::{GatewayConfig, Manager, Proxies},
    error::GatewayError,
};

/// Idle connections that are kept for each host, and how long.
const MAX_IDLE: usize = 8;
const IDLE_FOR: Duration = Duration::from_secs(30);

const MAX_HEADERS: usize = 128;

const AGENT: &str = concat!("warren-gateway/", env!("CARGO_PKG_VERSION"));

/// Each has connections of its own, so that an untrusted request never travels over a connection to a private address.
#[derive(Debug)]
pub(super) struct Clients {
    /// Dials any address: for what the operator configured.
    anywhere: Client,
    /// Dials public addresses only.
    public_only: Client,
    /// Dial their proxy and nothing else.
    proxied: Vec<(Url, Client)>,
    proxies: Proxies,
    apt_proxy: Option<Url>,
}

impl Clients {
    pub(super) fn new(config: &GatewayConfig) -> Result<Self, GatewayError> {
        let mut proxied = Vec::new();
        for proxy in [&config.apt_proxy, &config.proxies.http, &config.proxies.https].into_iter().flatten() {
            crate::config::base(proxy)?;
            let mut guard = Guard::default();
            guard.allow_private_name(proxy.host_str().unwrap_or_default());
            let all = Proxy::all(proxy.clone()).map_err(GatewayError::client)?;
            let client = builder(config)?.proxy(all).dns_resolver(guard.resolver());
            proxied.push((proxy.clone(), client.build().map_err(GatewayError::client)?));
        }
        let public_only = builder(config)?.no_proxy().dns_resolver(PublicOnly::default());
        Ok(Self {
            anywhere: builder(config)?.no_proxy().build().map_err(GatewayError::client)?,
            public_only: public_only.build().map_err(GatewayError::client)?,
            proxied,
            proxies: config.proxies.clone(),
            apt_proxy: config.apt_proxy.clone(),
        })
    }

    /// The client for this URL. Redirects are not followed: where they lead is for the caller to decide.
    pub(super) async fn choose(
        &self,
        manager: Manager,
        url: &Url,
        is_trusted: bool,
    ) -> Result<&Client, Refused> {
        let proxy = match (manager, &self.apt_proxy) {
            (Manager::Apt, Some(proxy)) => Some(proxy),
            _ => self.proxies.find(url),
        };
        let proxied = proxy.and_then(|proxy| self.proxied.iter().find(|(known, _)| known == proxy));
        match proxied {
            None if is_trusted => Ok(&self.anywhere),
            None => Ok(&self.public_only),
            Some((_, client)) => {
                if !is_trusted {
                    check_name(url).await?;
                }
                Ok(client)
            }
        }
    }
}

fn builder(config: &GatewayConfig) -> Result<ClientBuilder, GatewayError> {
    let builder = downloads::client_builder(Vec::new()).map_err(GatewayError::client)?;
    Ok(builder
        .user_agent(AGENT)
        .connect_timeout(config.patience.connect)
        .redirect(redirect::Policy::none())
        .pool_max_idle_per_host(MAX_IDLE)
        .pool_idle_timeout(IDLE_FOR)
        .http1_max_headers(MAX_HEADERS))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_trusted_requests_reach_a_private_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let direct: Url = format!("http://localhost:{port}/").parse().unwrap();
        let through_proxy: Url = format!("https://localhost:{port}/").parse().unwrap();
        let mut config = GatewayConfig::new("/nowhere");
        config.proxies.https = Some("http://proxy.example:3128".parse().unwrap());
        let clients = Clients::new(&config).unwrap();

        let client = clients.choose(Manager::Pip, &direct, false).await.unwrap();
        let error = client.get(direct.clone()).send().await.unwrap_err();
        assert!(downloads::cause::<Refused>(&error).is_some(), "{error:?}");
        clients.choose(Manager::Pip, &through_proxy, false).await.unwrap_err();
        assert!(clients.choose(Manager::Pip, &through_proxy, true).await.is_ok());

        let client = clients.choose(Manager::Pip, &direct, true).await.unwrap();
        let (connected, _answer) =
            tokio::join!(listener.accept(), client.get(direct).timeout(Duration::from_secs(1)).send());
        assert!(connected.is_ok());
    }
}
