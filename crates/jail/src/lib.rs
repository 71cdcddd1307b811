//! Linux cage primitives: namespaces, mounts, id maps, cgroups, capabilities, seccomp, and the spawner that combines
//! them.
//!
//! ```text
//!   daemon ── Request + descriptors ──→ spawner ── clone ──→ child runs the cage's steps, then *becomes* the guest
//!      ↑                                                       │
//!      └──────────────── Reply + pidfd, on a socket of the request's own ──┘
//! ```
//!
//! A [`Cage`] is data: the back end builds it, `doctor --explain` prints it, the child runs it. Nothing here knows what
//! a sandbox is, and nothing here uses threads: the spawner forks.

mod cage;
pub mod cgroup;
mod child;
mod devices;
mod edge;
mod floor;
mod guests;
mod handed;
mod image;
mod mount_target;
mod mounts;
mod netlink;
mod network;
mod outer;
mod own_program;
mod packet;
mod privileges;
pub mod probe;
mod program_pages;
mod seccomp;
mod spawner;
mod start;
mod sys;
mod tree;

pub use cage::{
    Cage, FileIdentity, HandedLayer, HandedMount, IdMap, IdRange, InternetBudget, Missing, MountFlag,
    MountName, MountOrigin, MountPath, Namespace, NewMount, PtsOptions, StagePath, Step,
};
pub use child::{Handoff, parse_stat};
pub use edge::{EDGE_USER, enter_edge_role, start_edge};
pub use floor::run_bare;
pub use guests::{LivingGuest, ProcessOwner, find_guests};
pub use image::{LookedInto as ImageView, is_image_free, look_into as look_into_image};
pub use network::{
    NamedPorts, NetworkEnd, NetworkMeans,
    later::{make_network_later, run_network_role},
};
pub use packet::{Failure, Naming, Reply, ReplySocket, Request, Unlinked};
pub use privileges::WORKLOAD_CAPABILITIES;
pub use program_pages::let_go_of_program;
pub use seccomp::{FILTER_NAME, SocketGate, install_filter, max_netlink_sockets};
pub use spawner::{SpawnError, SpawnerHandle, Worker};
pub use start::{run_spawner_role, start_spawner};
pub use sys::{inherit, limit_heaps, release_free_memory};
