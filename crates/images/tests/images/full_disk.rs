//! A disk that fills up in the middle.

use std::{
    io::Cursor,
    path::{Path, PathBuf},
};

use images::{Error, ImageConfig, Images, Platform, Progress, PullOptions};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::{
    fixture::{Layer, TestImage, everything_in, gzip, noise, options, small_image, zstd},
    server::Server,
};

/// A file system of three megabytes, while it exists.
struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        match mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), Some(c"size=3m,mode=0700")) {
            Ok(()) => Some(Self { directory }),
            Err(error) => {
                println!("skipped: a small file system cannot be mounted here ({error})");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _detached = unmount(self.directory.path(), UnmountFlags::DETACH);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_to_be_full_and_is_empty_again_afterwards() {
    let Some(disk) = SmallDisk::new() else { return };
    let nothing = Vec::<PathBuf>::new();
    let images = Images::open(disk.path(), options()).await.unwrap();
    let free = || rustix::fs::statvfs(disk.path()).unwrap().f_bfree;
    let before = free();

    // The download does not fit; the download fits and the layer does not. The same for archives and root file systems.
    let noisy = Layer::default().file("noise", &noise(4_000_000)).tar();
    let zeros = Layer::default().file("zeros", &vec![0; 4_000_000]).tar();
    let too_large = TestImage::new(&[(noisy.clone(), noisy.clone())]);
    let unpacks_too_large = TestImage::new(&[(zeros.clone(), zstd(&zeros))]);
    for image in [&too_large, &unpacks_too_large] {
        let server = Server::of(image, |_| None);
        let error = images
            .pull(&server.reference("app:1"), PullOptions::default(), Progress::none())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert_eq!((everything_in(disk.path()), free()), (nothing.clone(), before));
    }
    for archive in [too_large.layout("app:1"), unpacks_too_large.layout("app:1")] {
        let error = images.load(Cursor::new(archive), Platform::host()).await.unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert_eq!((everything_in(disk.path()), free()), (nothing.clone(), before));
    }
    for root in [noisy, gzip(&zeros)] {
        let (root, name) = (Cursor::new(root), "app:1".parse().unwrap());
        let error = images.import(root, ImageConfig::default(), Platform::host(), name).await.unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert_eq!((everything_in(disk.path()), free()), (nothing.clone(), before));
    }
    assert_eq!(images.list().await.unwrap(), []);

    let server = Server::of(&small_image("fits"), |_| None);
    images.pull(&server.reference("app:1"), PullOptions::default(), Progress::none()).await.unwrap();
}
