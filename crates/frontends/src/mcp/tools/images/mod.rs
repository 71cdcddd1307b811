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
use crate::mcp::{
    Toolset,
    tool::{Hints, Tool},
};

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            Toolset::Images,
            "image_list",
            "List images",
            "List the images on this host: name, size, digest, platform.",
            Hints::READS,
            look::list,
        ),
        Tool::new(
            Toolset::Images,
            "image_inspect",
            "Inspect image",
            "Show one image: environment, command, user, and its layers.",
            Hints::READS,
            look::inspect,
        ),
        Tool::new(
            Toolset::Images,
            "image_pull",
            "Pull image",
            "Pull an image from its registry, so that sandbox_create can use it. Calling again fetches updates.",
            Hints::SETS,
            pull::pull,
        ),
        Tool::new(
            Toolset::Images,
            "image_load",
            "Load images",
            "Load images from an archive on the host: docker save or OCI layout. Existing names move to the loaded images.",
            // A name that another image has is taken from it.
            Hints::DESTROYS,
            archives::load,
        ),
        Tool::new(
            Toolset::Images,
            "image_save",
            "Save images",
            "Save images to an archive on the host, for docker load or as an OCI layout.",
            // A file that is there is replaced.
            Hints::DESTROYS,
            archives::save,
        ),
        Tool::new(
            Toolset::Images,
            "image_import",
            "Import image",
            "Create an image with one layer from the tar of a root file system on the host.",
            Hints::DESTROYS,
            archives::import,
        ),
        Tool::new(
            Toolset::Images,
            "image_build",
            "Build image",
            "Build an image from a Dockerfile and a directory on the host. RUN reaches only package indexes. Layers are cached.",
            // A name that another image has is taken from it.
            Hints::DESTROYS,
            build::build,
        ),
        Tool::new(
            Toolset::Images,
            "image_tag",
            "Tag image",
            "Add a name to an image; if another image has it, the name moves.",
            Hints::DESTROYS,
            change::tag,
        ),
        Tool::new(
            Toolset::Images,
            "image_remove",
            "Remove images",
            "Remove names of images; an image is deleted with its last name.",
            Hints::DESTROYS,
            change::remove,
        ),
        Tool::new(
            Toolset::Images,
            "image_prune",
            "Prune images",
            "Remove every image that no sandbox or snapshot uses.",
            Hints::DESTROYS_MORE,
            change::prune,
        ),
    ]
}
