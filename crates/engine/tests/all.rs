//! Stories of the engine on the `fake` back end: no privilege, no sleeping, real stores and ledgers.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite;
