//! Sandboxes from the kernel's own parts: namespaces, overlay, cgroups, seccomp.
