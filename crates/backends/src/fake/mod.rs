//! Sandboxes that are only simulated, for tests and for building clients on any machine.
