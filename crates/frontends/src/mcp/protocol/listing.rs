//! The list of tools, in the library's words. Made once for each choice of toolsets.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model;

use crate::mcp::{
    Toolsets,
    tool::{Registry, Tool},
};

/// Lists that are kept. Clients that choose alike share one, and there are few choices in practice.
const MAX_KEPT: usize = 32;

type Kept = Vec<(Toolsets, Arc<Vec<model::Tool>>)>;

pub(super) fn tools(shown: &Toolsets) -> Arc<Vec<model::Tool>> {
    static KEPT: Mutex<Kept> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, list)) = kept.iter().find(|(sets, _)| sets == shown) {
        return Arc::clone(list);
    }
    let list = Arc::new(Registry::get().shown(shown).map(|one| tool(one, shown)).collect::<Vec<_>>());
    if kept.len() == MAX_KEPT {
        kept.remove(0);
    }
    kept.push((shown.clone(), Arc::clone(&list)));
    list
}

pub(super) fn tool(tool: &Tool, shown: &Toolsets) -> model::Tool {
    let hints = model::ToolAnnotations::new()
        .read_only(tool.hints.read_only)
        .destructive(tool.hints.destructive)
        .idempotent(tool.hints.idempotent)
        // What a tool touches is a sandbox, not the world.
        .open_world(false);
    model::Tool::new(tool.name, tool.description, tool.input.listed(shown))
        .with_title(tool.title)
        .with_raw_output_schema(tool.output.listed(shown))
        .with_annotations(hints)
}
