//! The code about images that all front ends share: how far a pull is, and how a registry is asked.

mod asked;
mod config;
mod pulling;

pub use self::{asked::Password, config::ImageConfig};
pub(crate) use self::{
    asked::{Registry, reference},
    pulling::Pulling,
};
