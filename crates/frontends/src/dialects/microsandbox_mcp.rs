//! microsandbox-mcp: our own tools as it lists them. Names and parameters of the native surface are its own, so only
//! the choice, the order and the resources differ.

use std::sync::Arc;

use crate::mcp::{Dialect, Envelope, Habits, Manner, Surface, Tool, native_tools};

/// As of version 0.7.
pub(super) const CURRENT: Dialect =
    Dialect { name: "microsandbox-mcp", surface: || surface(RENAMED_IN_0_7, &[RESTORE]) };
/// As up to version 0.6, whose clients compare the list.
pub(super) const OLDER: Dialect =
    Dialect { name: "microsandbox-mcp-0.6", surface: || surface(BEFORE_0_7, &[]) };

const RENAMED_IN_0_7: [&str; 2] = ["snapshot_save", "snapshot_load"];
const BEFORE_0_7: [&str; 2] = ["snapshot_export", "snapshot_import"];
/// Came with 0.7, behind `sandbox_create`.
const RESTORE: &str = "sandbox_restore";

/// In its order, without what differs between the versions.
const BEFORE_RESTORE: [&str; 4] = ["runtime_check", "runtime_install", "sandbox_run", "sandbox_create"];
const AFTER_RESTORE: [&str; 54] = [
    "sandbox_start",
    "sandbox_list",
    "sandbox_status",
    "sandbox_inspect",
    "sandbox_stop",
    "sandbox_drain",
    "sandbox_wait",
    "sandbox_remove",
    "sandbox_exec",
    "sandbox_shell",
    "sandbox_exec_start",
    "sandbox_exec_poll",
    "sandbox_exec_write_stdin",
    "sandbox_exec_signal",
    "sandbox_exec_close",
    "sandbox_logs_read",
    "sandbox_logs_stream",
    "sandbox_fs_read",
    "sandbox_fs_write",
    "sandbox_fs_list",
    "sandbox_fs_mkdir",
    "sandbox_fs_remove",
    "sandbox_fs_copy",
    "sandbox_fs_rename",
    "sandbox_fs_stat",
    "sandbox_fs_exists",
    "sandbox_fs_copy_from_host",
    "sandbox_fs_copy_to_host",
    "volume_create",
    "volume_list",
    "volume_inspect",
    "volume_remove",
    "volume_fs_read",
    "volume_fs_write",
    "volume_fs_list",
    "volume_fs_mkdir",
    "volume_fs_remove",
    "volume_fs_copy",
    "volume_fs_rename",
    "volume_fs_stat",
    "volume_fs_exists",
    "sandbox_metrics",
    "sandbox_metrics_all",
    "sandbox_metrics_stream",
    "image_list",
    "image_inspect",
    "image_remove",
    "image_prune",
    "snapshot_create",
    "snapshot_list",
    "snapshot_inspect",
    "snapshot_verify",
    "snapshot_remove",
    "snapshot_reindex",
];

/// Last in its list.
const SSH: [&str; 9] = [
    "sandbox_ssh_exec",
    "sandbox_sftp_read",
    "sandbox_sftp_write",
    "sandbox_sftp_mkdir",
    "sandbox_sftp_remove",
    "sandbox_sftp_rename",
    "sandbox_sftp_realpath",
    "sandbox_sftp_readlink",
    "sandbox_sftp_symlink",
];

fn surface(archives: [&'static str; 2], added: &[&'static str]) -> Arc<Surface> {
    let names = BEFORE_RESTORE.iter().chain(added).chain(&AFTER_RESTORE).chain(&archives).chain(&SSH);
    let mut native: Vec<Tool> = native_tools();
    // The names of the other version are taken too, though not listed.
    let (mut listed, mut unlisted) = (Vec::new(), Vec::new());
    for name in names {
        let found = native.iter().position(|tool| tool.name == *name);
        listed.extend(found.map(|at| native.swap_remove(at).with_older_names()));
    }
    unlisted.extend(native.into_iter().filter(|tool| {
        RENAMED_IN_0_7.contains(&tool.name) || BEFORE_0_7.contains(&tool.name) || tool.name == RESTORE
    }));
    let manner = Manner {
        server: "microsandbox",
        instructions: None,
        prompts: &[],
        schemes: &["microsandbox"],
        has_toolsets: false,
    };
    // Its clients name images that it ships, and read whole outputs.
    let habits = Habits { image_fallback: true, ..Habits::default() };
    let surface = Surface::new(manner, Box::new(Envelope), listed).with_habits(habits);
    Arc::new(surface.with_unlisted(unlisted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dialect: Dialect) -> Vec<&'static str> {
        (dialect.surface)().listed().map(|tool| tool.name).collect()
    }

    #[test]
    fn the_list_is_theirs() {
        let current = names(CURRENT);
        assert_eq!(current.len(), 70);
        assert_eq!(
            &current[..6],
            [
                "runtime_check",
                "runtime_install",
                "sandbox_run",
                "sandbox_create",
                "sandbox_restore",
                "sandbox_start"
            ]
        );
        assert_eq!(&current[59..62], ["snapshot_save", "snapshot_load", "sandbox_ssh_exec"]);
        assert_eq!(current[61..], SSH);
        let older = names(OLDER);
        assert_eq!(older.len(), 69);
        assert_eq!(&older[58..60], ["snapshot_export", "snapshot_import"]);
        assert_eq!(older[60..], SSH);
        assert!(!older.contains(&"sandbox_restore"));
    }

    #[test]
    fn its_own_names_of_times_are_listed() {
        let surface = (CURRENT.surface)();
        for (tool, names) in [
            ("sandbox_run", ["/properties/maxDuration", "/properties/lifecycle/properties/maxDurationSecs"]),
            (
                "sandbox_create",
                ["/properties/idleTimeout", "/properties/lifecycle/properties/replaceTimeoutMs"],
            ),
            ("sandbox_exec", ["/properties/timeout", "/properties/timeoutMs"]),
        ] {
            let tool = surface.listed().find(|listed| listed.name == tool).unwrap();
            let schema = serde_json::Value::Object(tool.input.full());
            assert!(names.iter().all(|name| schema.pointer(name).is_some()), "{}: {schema}", tool.name);
        }
    }

    #[test]
    fn its_clients_keep_its_defaults() {
        for dialect in [CURRENT, OLDER] {
            let habits = (dialect.surface)().habits;
            assert_eq!(habits, Habits { max_output_bytes: 1024 * 1024, image_fallback: true });
        }
    }

    #[test]
    fn names_of_the_other_version_can_be_called() {
        for dialect in [CURRENT, OLDER] {
            let surface = (dialect.surface)();
            for name in ["snapshot_save", "snapshot_export", "sandbox_restore"] {
                assert!(surface.find(name).is_some(), "{name}");
            }
            assert!(surface.find("sandbox_run_code").is_none());
        }
    }
}
