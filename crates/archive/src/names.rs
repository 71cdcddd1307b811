//! Paths of members, which lead nowhere but down.

/// Longest name in a directory, by the kernel.
const MAX_NAME_BYTES: usize = 255;

/// Why a path is not one that an honest archive has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("its path is absolute")]
    Absolute,
    #[error("its path goes upwards")]
    Upwards,
    #[error("its path holds a zero byte")]
    ZeroByte,
    #[error("its path is longer than {0} bytes")]
    Long(usize),
    #[error("a name in its path is longer than {MAX_NAME_BYTES} bytes")]
    LongName,
}

/// The names that a path is made of, none of which is empty, `.` or `..`. No names at all are the top of the archive.
pub fn names(path: &[u8], max_path_bytes: usize) -> Result<Vec<&[u8]>, BadPath> {
    if path.first() == Some(&b'/') {
        return Err(BadPath::Absolute);
    }
    if path.len() > max_path_bytes {
        return Err(BadPath::Long(max_path_bytes));
    }
    if path.contains(&0) {
        return Err(BadPath::ZeroByte);
    }
    let names = path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<&[u8]> = names.collect();
    if names.contains(&&b".."[..]) {
        return Err(BadPath::Upwards);
    }
    if names.iter().any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(BadPath::LongName);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_down_or_are_refused() {
        let joined = |text: &'static str| names(text.as_bytes(), 100).map(|names| names.join(&b'/'));
        assert_eq!(joined("./a//b/./c/"), Ok(b"a/b/c".to_vec()));
        assert_eq!(joined("./"), Ok(Vec::new()));
        assert_eq!(joined("a..b/..c"), Ok(b"a..b/..c".to_vec()));
        assert_eq!(joined("/etc"), Err(BadPath::Absolute));
        for bad in ["..", "a/../b", "a/.."] {
            assert_eq!(joined(bad), Err(BadPath::Upwards), "{bad}");
        }
        assert_eq!(joined("a\0b"), Err(BadPath::ZeroByte));
        assert_eq!(names(&b"n".repeat(256), 1000), Err(BadPath::LongName));
        assert_eq!(names(&b"dd/".repeat(50), 100), Err(BadPath::Long(100)));
    }
}
