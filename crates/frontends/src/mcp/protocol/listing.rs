//! The list of a surface's tools, in the library's words. Made once for each choice of toolsets.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model;

use crate::mcp::{Toolsets, surface::Surface, tool::Tool};

/// Lists that are kept. Clients that choose alike share one, and there are few choices in practice.
const MAX_KEPT: usize = 32;

/// The lists of one surface.
#[derive(Debug, Default)]
pub(super) struct Lists {
    kept: Mutex<Vec<(Toolsets, Arc<Vec<model::Tool>>)>>,
}

impl Lists {
    pub(super) fn tools(&self, surface: &Surface, shown: &Toolsets) -> Arc<Vec<model::Tool>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, list)) = kept.iter().find(|(sets, _)| sets == shown) {
            return Arc::clone(list);
        }
        let list = Arc::new(tools(surface, shown));
        if kept.len() == MAX_KEPT {
            kept.remove(0);
        }
        kept.push((shown.clone(), Arc::clone(&list)));
        list
    }
}

pub(super) fn tools(surface: &Surface, shown: &Toolsets) -> Vec<model::Tool> {
    surface.shown(shown).map(|one| tool(surface, one, shown)).collect()
}

pub(super) fn tool(surface: &Surface, tool: &Tool, shown: &Toolsets) -> model::Tool {
    let hints = model::ToolAnnotations::new()
        .read_only(tool.hints.read_only)
        .destructive(tool.hints.destructive)
        .idempotent(tool.hints.idempotent)
        // What a tool touches is a sandbox, not the world.
        .open_world(false);
    // Who cannot ask for more of it is shown all of it.
    let all = Toolsets::all();
    let shown = if surface.manner.has_toolsets { shown } else { &all };
    let listed = model::Tool::new(tool.name, tool.description, tool.input.listed(shown))
        .with_title(tool.title)
        .with_annotations(hints);
    match surface.output_of(tool.name) {
        Some(output) => listed.with_raw_output_schema(output.listed(shown)),
        None => listed,
    }
}
