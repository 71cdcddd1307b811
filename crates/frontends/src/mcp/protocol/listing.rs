//! The list of a surface's tools, in the library's words. Made once for each choice of toolsets.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model;

use crate::mcp::{Hints, Toolsets, surface::Surface, tool::Tool};

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
    // Who cannot ask for more of it is shown all of it.
    let all = Toolsets::all();
    let shown = if surface.manner.has_toolsets { shown } else { &all };
    let hints = annotations(tool.hints, shown.is_all());
    let listed = model::Tool::new(tool.name, tool.description, tool.input.listed(shown))
        .with_title(tool.title)
        .with_annotations(hints);
    match surface.output_of(tool, shown) {
        Some(output) => listed.with_raw_output_schema(Arc::new(output)),
        None => listed,
    }
}

/// Returns the annotations of a tool: what it does to the world. The short form leaves out what the protocol takes for
/// granted, because a model pays for every byte: a tool that changes something is destructive and not idempotent, and
/// one that only looks is neither.
fn annotations(hints: Hints, is_whole: bool) -> model::ToolAnnotations {
    // A tool touches a sandbox, not the world.
    let mut told = model::ToolAnnotations::new().open_world(false);
    if is_whole || hints.read_only {
        told = told.read_only(hints.read_only);
    }
    if is_whole || (!hints.read_only && !hints.destructive) {
        told = told.destructive(hints.destructive);
    }
    if is_whole || (!hints.read_only && hints.idempotent) {
        told = told.idempotent(hints.idempotent);
    }
    told
}
