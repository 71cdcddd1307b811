//! How many connections each address has.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Connections of one address at once, so that nobody takes every place.
const MAX_PER_ADDRESS: usize = 256;
/// The connections of this machine: its programs share one address, and a few hundred of them are nothing unusual.
const MAX_OF_THIS_MACHINE: usize = 1024;

/// Bounded by the connections there are.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<IpAddr, usize>>);

impl Peers {
    fn table(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection, while it is held; none where the address has enough.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<PeerPlace> {
        let most = if address.is_loopback() { MAX_OF_THIS_MACHINE } else { MAX_PER_ADDRESS };
        let mut table = self.table();
        let n_open = table.entry(address).or_default();
        if *n_open >= most {
            return None;
        }
        *n_open += 1;
        Some(PeerPlace { peers: Arc::clone(self), address })
    }
}

#[derive(Debug)]
pub(super) struct PeerPlace {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut table = self.peers.table();
        if let Some(n_open) = table.get_mut(&self.address) {
            *n_open -= 1;
            if *n_open == 0 {
                table.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_the_places_of_others() {
        let peers = Arc::new(Peers::default());
        let [one, other, own] = ["192.0.2.1", "192.0.2.2", "127.0.0.1"].map(|text| text.parse().unwrap());
        let mut places: Vec<_> = (0..MAX_PER_ADDRESS).map(|_| peers.enter(one).unwrap()).collect();
        assert!(peers.enter(one).is_none());
        assert!(peers.enter(other).is_some());
        places.pop();
        assert!(peers.enter(one).is_some(), "a place that was left is free");
        let of_this_machine: Vec<_> = std::iter::from_fn(|| peers.enter(own)).collect();
        assert_eq!(of_this_machine.len(), MAX_OF_THIS_MACHINE);
        drop((places, of_this_machine));
        assert!(peers.table().is_empty(), "nothing is remembered of those who left");
    }
}
