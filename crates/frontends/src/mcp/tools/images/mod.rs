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
            "Pull an image from its registry, so that sandbox_create can use it. Calling again fetches updates.";
        // A name that another image has is taken from it.
        "image_load", "Load images", DESTROYS, archives::load:
            "Load images from an archive on the host: docker save or OCI layout. Existing names move to the loaded images.";
        // A file that is there is replaced.
        "image_save", "Save images", DESTROYS, archives::save:
            "Save images to an archive on the host, for docker load or as an OCI layout.";
        "image_import", "Import image", DESTROYS, archives::import:
            "Create an image with one layer from the tar of a root file system on the host.";
        // A name that another image has is taken from it.
        "image_build", "Build image", DESTROYS, build::build:
            "Build an image from a Dockerfile and a directory on the host. RUN reaches only package indexes. Layers are cached.";
        "image_tag", "Tag image", DESTROYS, change::tag:
            "Add a name to an image; if another image has it, the name moves.";
        "image_remove", "Remove images", DESTROYS, change::remove:
            "Remove names of images; an image is deleted with its last name.";
        "image_prune", "Prune images", DESTROYS_MORE, change::prune:
            "Remove every image that no sandbox or snapshot uses.";
    }
}
