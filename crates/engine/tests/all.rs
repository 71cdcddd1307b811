//! Stories of the engine on real sandboxes, with faults on request: real stores, real ledgers, real guests.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite;
