//! `runtime_check`, `runtime_install`: what this host can do, and what someone with more rights could mend.

use sandbox::{Capability, ImageRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::select;
use crate::mcp::{Answer, Call, Tool, ToolResult};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Runtime;
        "runtime_check", "Check runtime", READS, check:
            "Show the server's version, what its host supports, what is missing, and the settings that apply to you.";
        "runtime_install", "Install runtime", SETS, install:
            "Fix what can be fixed without root, and list what an operator has to do. Downloads nothing.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct NoArguments {}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Runtime {
    installed: bool,
    server_version: &'static str,
    platform: &'static str,
    arch: &'static str,
    backend: &'static str,
    /// Every back end that `backend` of sandbox_create can name, the default first.
    backends: Vec<&'static str>,
    /// Features that the default back end has here, found by trying.
    capabilities: Vec<&'static str>,
    /// Features it lacks, and why.
    missing: Vec<String>,
    images: Vec<&'static str>,
    network: &'static str,
    namespace: String,
    host_path_policy: &'static str,
    host_paths: Vec<String>,
    writable_host_paths: Vec<String>,
    dangerous_enabled: bool,
    max_output_bytes: u64,
    default_timeout_ms: u64,
    session_ttl_ms: u64,
    toolsets: String,
    /// One program without Node and without a hypervisor.
    node_version: (),
    msb_path: (),
    libkrunfw_path: (),
}

async fn check(call: Call, _: NoArguments) -> ToolResult<Runtime> {
    let capabilities = call.engine().capabilities();
    let settings = &call.settings;
    let (host_path_policy, roots) = settings.host.told_to(&call.who);
    let path = |root: &crate::mcp::HostRoot| root.path.display().to_string();
    let runtime = Runtime {
        installed: true,
        server_version: env!("CARGO_PKG_VERSION"),
        platform: std::env::consts::OS,
        arch: arch(std::env::consts::ARCH),
        backend: capabilities.backend.as_str(),
        backends: call.engine().backends().iter().map(|found| found.backend.as_str()).collect(),
        capabilities: capabilities.has.iter().map(|capability| capability_name(*capability)).collect(),
        missing: capabilities.missing.clone(),
        images: vec![ImageRef::HOST],
        network: "none",
        namespace: select::namespace(&call).to_string(),
        host_path_policy,
        host_paths: roots.iter().map(path).collect(),
        writable_host_paths: roots.iter().filter(|root| root.write).map(path).collect(),
        dangerous_enabled: settings.dangerous_enabled,
        max_output_bytes: call.max_bytes(None) as u64,
        default_timeout_ms: settings.default_timeout_ms,
        session_ttl_ms: settings.session_ttl_ms,
        toolsets: call.session.toolsets(&settings.toolsets).to_string(),
        node_version: (),
        msb_path: (),
        libkrunfw_path: (),
    };
    Ok(Answer::new(runtime).warn_all(call.engine().warnings(&call.who)))
}

/// As Node calls it, which clients of this surface expect.
fn arch(arch: &'static str) -> &'static str {
    match arch {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn capability_name(capability: Capability) -> &'static str {
    match capability {
        Capability::Pause => "pause",
        Capability::MemoryLimit => "memoryLimit",
        Capability::CpuLimit => "cpuLimit",
        Capability::PidsLimit => "pidsLimit",
        Capability::HardDiskLimit => "hardDiskLimit",
        Capability::Images => "images",
        Capability::Volumes => "volumes",
        Capability::Snapshots => "snapshots",
        Capability::HostPaths => "hostPaths",
        Capability::Network => "network",
        Capability::UdpPorts => "udpPorts",
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Installed {
    installed: bool,
    message: &'static str,
    mended: Vec<String>,
    /// For someone who may change the host.
    missing: Vec<String>,
}

/// The daemon is its own runtime, and mends what it can when it starts; what is missing needs rights that it lacks.
async fn install(call: Call, _: NoArguments) -> ToolResult<Installed> {
    let missing = call.engine().capabilities().missing.clone();
    let message = match missing.as_slice() {
        [] => "Runtime dependencies are installed.",
        _ => "Runtime dependencies are installed. Sandboxes work; an operator has to add what is missing.",
    };
    let installed = Installed { installed: true, message, mended: Vec::new(), missing };
    Ok(Answer::new(installed).warn_all(call.engine().warnings(&call.who)))
}

#[cfg(test)]
mod tests {
    use engine::Principal;
    use sandbox::{BackendKind, Capabilities};
    use serde_json::json;
    use test_backend::TestBackend;

    use crate::mcp::{HostPolicy, HostRoot, Settings, testing::Client};

    #[tokio::test]
    async fn a_check_tells_what_works_and_which_settings_hold() {
        let root = HostRoot { path: "/srv/data".into(), write: false };
        let settings = Settings {
            host: HostPolicy { roots: vec![root], ..HostPolicy::default() },
            dangerous_enabled: true,
            ..Settings::default()
        };
        let client = Client::with(settings).await;
        let data = client.data("runtime_check", json!({})).await;
        assert_eq!((&data["installed"], &data["backend"]), (&json!(true), &json!("namespace")));
        assert_eq!(data["serverVersion"], env!("CARGO_PKG_VERSION"));
        assert_eq!(data["capabilities"], json!(client.call.engine().capabilities().has));
        assert_eq!(
            (&data["hostPathPolicy"], &data["hostPaths"]),
            (&json!("allowlist"), &json!(["/srv/data"]))
        );
        assert_eq!((&data["writableHostPaths"], &data["dangerousEnabled"]), (&json!([]), &json!(true)));
        for gone in ["nodeVersion", "msbPath", "libkrunfwPath"] {
            assert!(data.get(gone).unwrap().is_null(), "{gone}");
        }
        client.error("runtime_check", json!({ "verbose": true }), "invalid_request").await;
    }

    #[tokio::test]
    async fn a_caller_of_one_namespace_is_told_nothing_of_the_host() {
        let root = HostRoot { path: "/srv/data".into(), write: true };
        let host = HostPolicy { roots: vec![root], ..HostPolicy::default() };
        for host in [HostPolicy { unrestricted: true, ..host.clone() }, host] {
            let mut client = Client::with(Settings { host, ..Settings::default() }).await;
            client.call.who = Principal::of_namespace("ana", "red".parse().unwrap());
            let data = client.data("runtime_check", json!({})).await;
            assert_eq!(data["hostPathPolicy"], "none");
            assert_eq!((&data["hostPaths"], &data["writableHostPaths"]), (&json!([]), &json!([])));
        }
    }

    #[tokio::test]
    async fn an_installation_names_what_an_operator_can_do() {
        let backend = TestBackend::new();
        backend.set_capabilities(Capabilities::all(BackendKind::Namespace));
        let client = Client::over(backend, Settings::default()).await;
        let data = client.data("runtime_install", json!({})).await;
        assert_eq!(data["message"], "Runtime dependencies are installed.");
        assert_eq!((&data["installed"], &data["missing"]), (&json!(true), &json!([])));

        let backend = TestBackend::new();
        let missing = vec!["No cgroup was delegated, so memory is not limited.".to_owned()];
        backend.set_capabilities(Capabilities { backend: BackendKind::Namespace, has: vec![], missing });
        let client = Client::over(backend, Settings::default()).await;
        let data = client.data("runtime_install", json!({})).await;
        assert_eq!(data["missing"], json!(["No cgroup was delegated, so memory is not limited."]));
        assert!(data["message"].as_str().unwrap().contains("operator"), "{data}");
        assert_eq!(client.data("runtime_check", json!({})).await["missing"], data["missing"]);
    }
}
