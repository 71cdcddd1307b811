//! The guest as its host sees it: a process, a socket, and real effects.

mod exec;
mod support;
