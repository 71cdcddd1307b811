//! The lowest layer of image `host` through the life of a daemon: made once, and again after the host's packages
//! changed. Sandboxes that run keep theirs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    Directories,
    pulse::Pulse,
    remains,
    skeleton::{self, Owner, Skeleton},
};

/// How long somebody who asks about a sandbox waits for a layer in the making.
const MAKING_TIME: Duration = Duration::from_secs(2);

/// Said of a sandbox of image `host` that runs on from before an upgrade.
const OUTDATED: &str = "The host's packages changed since it started: it has the new programs in /usr and the old files in /etc. \
    Restart it to have both new.";

#[derive(Debug)]
pub(crate) struct HostImage {
    /// Its root.
    host: PathBuf,
    directories: Directories,
    owner: Owner,
    /// The last layer, and the pulse of the host that it was made of. Never locked while a layer is made.
    made: Mutex<Option<(Pulse, Skeleton)>>,
    /// Locked while a layer is made.
    making: Mutex<()>,
}

impl HostImage {
    /// Makes nothing yet. `directories`: of the daemon, not of one back end.
    pub(crate) fn new(directories: Directories, owner: Owner) -> Self {
        Self::of(PathBuf::from("/"), directories, owner)
    }

    fn of(host: PathBuf, directories: Directories, owner: Owner) -> Self {
        Self { host, directories, owner, made: Mutex::default(), making: Mutex::default() }
    }

    /// The layer for a new sandbox. Blocks while it is made.
    pub(crate) fn skeleton(&self) -> io::Result<Skeleton> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.make(&turn)
    }

    /// What a person who looks at a sandbox should know about this layer, which it runs on. Soon after the host's
    /// packages changed it waits a little for the new layer.
    pub(crate) async fn remarks(self: &Arc<Self>, skeleton: Option<&str>) -> Vec<String> {
        let Some(skeleton) = skeleton else { return Vec::new() };
        if self.current().is_none() {
            let image = Arc::clone(self);
            // Whoever comes while somebody makes it is told what is known. An error comes back with the next sandbox
            // that is made.
            let made = tokio::task::spawn_blocking(move || {
                image.making.try_lock().ok().map(|turn| image.make(&turn).map(drop))
            });
            drop(tokio::time::timeout(MAKING_TIME, made).await);
        }
        let is_outdated =
            self.made().as_ref().is_some_and(|(_, now)| now.name().is_some_and(|now| now != skeleton));
        if is_outdated { vec![OUTDATED.to_owned()] } else { Vec::new() }
    }

    fn made(&self) -> MutexGuard<'_, Option<(Pulse, Skeleton)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last layer, if nothing on the host changed since.
    fn current(&self) -> Option<Skeleton> {
        let now = Pulse::of(&self.host);
        self.made().as_ref().filter(|(known, _)| *known == now).map(|(_, skeleton)| skeleton.clone())
    }

    fn make(&self, _turn: &MutexGuard<'_, ()>) -> io::Result<Skeleton> {
        // Taken first: what changes while the layer is made is noticed by the next caller.
        let pulse = Pulse::of(&self.host);
        if let Some((_, current)) = self.made().as_ref().filter(|(known, _)| *known == pulse) {
            return Ok(current.clone());
        }
        let layers = self.directories.layers();
        let skeleton = skeleton::prepare(&self.host, &layers, self.owner)?;
        let before = self.made().replace((pulse, skeleton.clone()));
        if before.is_some_and(|(_, before)| before != skeleton) {
            tracing::info!(layer = skeleton.name(), "the host's packages changed; image host is renewed");
            self.sweep();
        }
        Ok(skeleton)
    }

    /// Removes the layers that nobody uses any more.
    fn sweep(&self) {
        for layer in remains::unused_skeletons(&self.directories) {
            if let Err(error) = remove(&layer) {
                tracing::warn!(%error, layer = %layer.display(), "an old layer of image host stays");
            }
        }
    }
}

/// Under another name first: nobody must find a half of it.
fn remove(layer: &Path) -> io::Result<()> {
    let unfinished = layer.with_file_name(format!("{}{}", skeleton::UNFINISHED, skeleton::unique_name()));
    fs::rename(layer, &unfinished)?;
    fs::remove_dir_all(unfinished)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host of its own, whose packages can be changed.
    struct Lab {
        place: tempfile::TempDir,
        image: Arc<HostImage>,
    }

    impl Lab {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let host = place.path().join("host");
            fs::create_dir_all(host.join("etc/alternatives")).unwrap();
            fs::create_dir_all(host.join("usr")).unwrap();
            let directories = Directories { home: place.path().join("home"), run: place.path().join("run") };
            let image = Arc::new(HostImage::of(host, directories, Owner::User));
            Self { place, image }
        }

        fn install(&self, name: &str) {
            fs::write(self.place.path().join("host/etc/alternatives").join(name), name).unwrap();
        }

        fn n_layers(&self) -> usize {
            fs::read_dir(self.image.directories.layers()).unwrap().count()
        }

        fn remarks(&self, skeleton: &str) -> Vec<String> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(self.image.remarks(Some(skeleton)))
        }
    }

    #[test]
    fn the_first_look_after_a_change_knows_of_it() {
        let lab = Lab::new();
        let old = lab.image.skeleton().unwrap().name().unwrap();
        assert_eq!(lab.remarks(&old), Vec::<String>::new());
        lab.install("badger");
        assert_eq!(lab.remarks(&old), [OUTDATED]);
        assert_eq!(lab.remarks(&lab.image.skeleton().unwrap().name().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn nobody_who_looks_waits_for_a_thread_that_makes_a_layer() {
        let lab = Lab::new();
        let old = lab.image.skeleton().unwrap().name().unwrap();
        let _making = lab.image.making.lock().unwrap();
        assert_eq!(lab.image.skeleton().unwrap().name().unwrap(), old);
        lab.install("badger");
        assert_eq!(lab.remarks(&old), Vec::<String>::new());
    }

    #[test]
    fn layers_of_a_host_that_changes_often_do_not_pile_up() {
        let lab = Lab::new();
        let mut names = Vec::new();
        for number in 0..20 {
            lab.install(&format!("badger-{number}"));
            names.push(lab.image.skeleton().unwrap().name().unwrap());
        }
        assert_eq!(lab.n_layers(), remains::KEPT_SKELETONS);
        assert!(lab.image.directories.layers().join(names.last().unwrap()).is_dir());
    }
}
