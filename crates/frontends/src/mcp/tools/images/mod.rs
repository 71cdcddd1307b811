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
            "Get an image from its registry, so that sandbox_create can use it. Asking again gets what is new.",
            Hints::SETS,
            pull::pull,
        ),
        Tool::new(
            Toolset::Images,
            "image_load",
            "Load images",
            "Take images from an archive on the host: by docker save, or an OCI layout. Names move to them.",
            // A name that another image has is taken from it.
            Hints::DESTROYS,
            archives::load,
        ),
        Tool::new(
            Toolset::Images,
            "image_save",
            "Save images",
            "Write images to an archive on the host, for docker load or as an OCI layout.",
            // A file that is there is replaced.
            Hints::DESTROYS,
            archives::save,
        ),
        Tool::new(
            Toolset::Images,
            "image_import",
            "Import image",
            "Make an image of one layer from the tar of a root file system on the host.",
            Hints::DESTROYS,
            archives::import,
        ),
        Tool::new(
            Toolset::Images,
            "image_build",
            "Build image",
            "Build an image from a Dockerfile and a directory of the host. RUN has no network. Layers that are known are used again.",
            // A name that another image has is taken from it.
            Hints::DESTROYS,
            build::build,
        ),
        Tool::new(
            Toolset::Images,
            "image_tag",
            "Tag image",
            "Give an image a further name, which it takes from any other image.",
            Hints::DESTROYS,
            change::tag,
        ),
        Tool::new(
            Toolset::Images,
            "image_remove",
            "Remove images",
            "Take names of images away, and with its last name the image.",
            Hints::DESTROYS,
            change::remove,
        ),
        Tool::new(
            Toolset::Images,
            "image_prune",
            "Prune images",
            "Remove every image that no sandbox and no snapshot uses.",
            Hints::DESTROYS_MORE,
            change::prune,
        ),
    ]
}
