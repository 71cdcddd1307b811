//! Images: what is here, getting more, and taking them away.

mod archives;
mod build;
mod change;
mod look;
mod pull;
mod shapes;
#[cfg(test)]
mod tests;

pub(crate) use self::pull::{not_pulled, while_pulling};
use crate::mcp::Tool;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Images;
        "image_list", "List images", READS, look::list:
            "List the images on this host: name, size, digest, platform.";
        "image_inspect", "Inspect image", READS, look::inspect:
            "Show one image: environment, command, user, and its layers.";
        "image_pull", "Pull image", SETS, pull::pull:
            "Get an image from its registry, so that sandbox_create can use it. Asking again gets what is new.";
        // A name that another image has is taken from it.
        "image_load", "Load images", DESTROYS, archives::load:
            "Take images from an archive on the host: by docker save, or an OCI layout. Names move to them.";
        // A file that is there is replaced.
        "image_save", "Save images", DESTROYS, archives::save:
            "Write images to an archive on the host, for docker load or as an OCI layout.";
        "image_import", "Import image", DESTROYS, archives::import:
            "Make an image of one layer from the tar of a root file system on the host.";
        // A name that another image has is taken from it.
        "image_build", "Build image", DESTROYS, build::build:
            "Build an image from a Dockerfile and a directory of the host. RUN has no network. Layers that are known are used again.";
        "image_tag", "Tag image", DESTROYS, change::tag:
            "Give an image a further name, which it takes from any other image.";
        "image_remove", "Remove images", DESTROYS, change::remove:
            "Take names of images away, and with its last name the image.";
        "image_prune", "Prune images", DESTROYS_MORE, change::prune:
            "Remove every image that no sandbox and no snapshot uses.";
    }
}
