//! A gateway on a loopback port, with a cache that is thrown away.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use gateway::{ClientId, Gateway, GatewayConfig, Patience, Scope};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::index::Index;

pub(crate) struct Served {
    pub(crate) gateway: Gateway,
    pub(crate) address: SocketAddr,
    pub(crate) home: TempDir,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    /// All three kinds of packages from one index.
    pub(crate) async fn before(index: &Index) -> Self {
        Self::with(index, |_| {}).await
    }

    pub(crate) async fn with(index: &Index, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut config = config(&index.url(""), home.path().join("cache"));
        change(&mut config);
        Self::open(config, home, Scope::ALL).await
    }

    pub(crate) async fn open(config: GatewayConfig, home: TempDir, scope: Scope) -> Self {
        let gateway = Gateway::open(config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = gateway.clone();
        let task = tokio::spawn(async move {
            let mut clients = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let gateway = serving.clone();
                clients.spawn(async move { gateway.serve(stream, scope, ClientId::new("test")).await });
            }
        });
        Self { gateway, address, home, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The names of all blobs in the cache.
    pub(crate) fn blobs(&self) -> Vec<String> {
        let mut names: Vec<_> = files(&self.home.path().join("cache/blobs"))
            .into_iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn drafts(&self) -> usize {
        files(&self.home.path().join("cache/tmp")).len()
    }
}

pub(crate) fn config(index: &str, cache: PathBuf) -> GatewayConfig {
    let mut config = GatewayConfig::new(cache);
    config.pip_index = format!("{index}/simple/").parse().unwrap();
    config.npm_registry = format!("{index}/npm/").parse().unwrap();
    config.apt_sources = vec![format!("{index}/debian").parse().unwrap()];
    // An index that is silent on purpose is told from one that is slow by nothing but time; the others answer at once.
    let short = Duration::from_millis(500);
    config.patience = Patience { answer: short, silence: short, ..Patience::default() };
    config
}

pub(crate) fn files(directory: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}
