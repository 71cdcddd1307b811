//! Real sandboxes on the real kernel, through the command line that people use.
//!
//! Runs as root and, by `scripts/test-rootless`, again as an ordinary user; a test that needs root says so and returns.
#![expect(clippy::unwrap_used, reason = "what a test cannot do, it reports by panicking")]

mod harness;
mod oci;
mod small_disk;

mod attack;
mod backends;
mod build_packages;
mod builds;
mod builds_broken_off;
mod builds_copies;
mod code;
mod crashes;
mod cycles;
mod escape;
mod image_crashes;
mod images;
mod ledger;
mod lifecycle;
mod limits;
mod lost_records;
mod network;
mod packages;
mod patches;
mod refusals;
mod snapshot_crashes;
mod snapshots;
mod stand_in;
mod volume_commands;
mod volumes;
mod work;
