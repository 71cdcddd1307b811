//! Dockerfiles: what they say, and what is to be done for it. Strings in, values out; no I/O.
//!
//! [`Dockerfile::parse`] reads the text, [`Dockerfile::plan`] chooses the stages that are needed and in which order,
//! and a [`Scope`] walks through one stage: it knows variables and configuration, and turns each instruction into a
//! [`Step`].
#![forbid(unsafe_code)]

mod dockerfile;
mod error;
mod expand;
mod glob;
mod ignore;
mod instruction;
mod lines;
mod options;
mod scope;
mod words;

pub use crate::{
    dockerfile::{Base, Dockerfile, Located, Plan, Stage, StageRef},
    error::{Error, Result},
    glob::Pattern,
    ignore::{Ignore, clean},
    instruction::{Command, Copy, CopyKind, Heredoc, Instruction, Network},
    options::{BuildArgs, Target},
    scope::{Config, CopyStep, RunStep, Scope, Step},
};

/// Largest Dockerfile; people write them by hand.
pub const MAX_DOCKERFILE_BYTES: usize = 1024 * 1024;
/// Most instructions of one Dockerfile.
pub const MAX_INSTRUCTIONS: usize = 2000;
/// Longest text that variables may grow to, so that a few doublings do not fill the memory.
pub const MAX_EXPANDED_BYTES: usize = 256 * 1024;
/// Most that all variables, arguments and labels take together, so that many of them do not either. No kernel starts a
/// program with more.
pub const MAX_VARIABLE_BYTES: usize = 1024 * 1024;
