//! The AppArmor profile that lets this program make user namespaces.

/// The profile of the packages, for a program in `/usr/bin`.
const PACKAGED: &str = include_str!("../../../scripts/dist/files/apparmor");
const PACKAGED_HEAD: &str = "profile warren /usr/bin/warren ";
const PACKAGED_LOCAL: &str = "<local/warren>";

/// The same for a program in another place. Its name differs, so that both can be loaded.
pub(crate) fn profile(program: &str) -> String {
    let name = jail::probe::apparmor_name(program);
    PACKAGED
        .replace(PACKAGED_HEAD, &format!("profile {name} {} ", quoted(program)))
        .replace(PACKAGED_LOCAL, &format!("<local/{name}>"))
}

/// A path as the profile's language takes it literally.
fn quoted(path: &str) -> String {
    let mut quoted = String::from("\"");
    for c in path.chars() {
        if r#"\"*?[]{}^"#.contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_names_the_program_where_it_is() {
        assert!(PACKAGED.contains(PACKAGED_HEAD) && PACKAGED.contains(PACKAGED_LOCAL));
        let profile = profile("/home/ana/my tools/warren{1}");
        assert!(
            profile.contains(
                r#"profile home.ana.my_tools.warren_1_ "/home/ana/my tools/warren\{1\}" flags=(unconfined) {"#
            ),
            "{profile}"
        );
        assert!(profile.contains("include if exists <local/home.ana.my_tools.warren_1_>"), "{profile}");
        assert!(profile.contains("  userns,") && !profile.contains("/usr/bin"), "{profile}");
    }
}
