//! (contract pending)
