//! `runtime_check`, `runtime_install`: what this host can do, and what someone with more rights could mend.

use sandbox::{Capability, ImageRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::select;
use crate::mcp::{
    Toolset,
    call::Call,
    envelope::{Answer, ToolResult},
    tool::{Hints, Tool},
};

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Runtime,
            "runtime_check",
            "Check runtime",
            "What this server is, what its host can do, what is missing, and which settings hold for you.",
            Hints::READS,
            check,
        ),
        Tool::new(
            Toolset::Runtime,
            "runtime_install",
            "Install runtime",
            "Mend what can be mended without root, and list what an operator has to do. Nothing needs a download.",
            Hints::SETS,
            install,
        ),
    ]
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
    /// What works here, found by trying.
    capabilities: Vec<&'static str>,
    /// What does not, and why.
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
    let roots = &settings.host.roots;
    let path = |root: &crate::mcp::HostRoot| root.path.display().to_string();
    let runtime = Runtime {
        installed: true,
        server_version: env!("CARGO_PKG_VERSION"),
        platform: std::env::consts::OS,
        arch: arch(std::env::consts::ARCH),
        backend: capabilities.backend.as_str(),
        capabilities: capabilities.has.iter().map(|capability| capability_name(*capability)).collect(),
        missing: capabilities.missing.clone(),
        images: vec![ImageRef::HOST],
        network: "none",
        namespace: select::namespace(&call).to_string(),
        host_path_policy: if settings.host.unrestricted { "unrestricted" } else { "allowlist" },
        host_paths: roots.iter().map(path).collect(),
        writable_host_paths: roots.iter().filter(|root| root.write).map(path).collect(),
        dangerous_enabled: settings.dangerous_enabled,
        max_output_bytes: settings.max_output_bytes,
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
        _ => "Runtime dependencies are installed. Sandboxes work; what is missing needs an operator.",
    };
    let installed = Installed { installed: true, message, mended: Vec::new(), missing };
    Ok(Answer::new(installed).warn_all(call.engine().warnings(&call.who)))
}
