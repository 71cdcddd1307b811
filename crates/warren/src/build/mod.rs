//! A build as a command sees it: what goes to the daemon, and what is shown of what comes back.

mod pack;
mod show;

pub(crate) use self::{
    pack::{Packing, Trouble, pack},
    show::Show,
};
