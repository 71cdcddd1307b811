//! Names of resource limits.

use guest_protocol::{Failure, FailureKind, Rlimit};

const NAMES: [(&str, u32); 16] = [
    ("as", libc::RLIMIT_AS),
    ("core", libc::RLIMIT_CORE),
    ("cpu", libc::RLIMIT_CPU),
    ("data", libc::RLIMIT_DATA),
    ("fsize", libc::RLIMIT_FSIZE),
    ("locks", libc::RLIMIT_LOCKS),
    ("memlock", libc::RLIMIT_MEMLOCK),
    ("msgqueue", libc::RLIMIT_MSGQUEUE),
    ("nice", libc::RLIMIT_NICE),
    ("nofile", libc::RLIMIT_NOFILE),
    ("nproc", libc::RLIMIT_NPROC),
    ("rss", libc::RLIMIT_RSS),
    ("rtprio", libc::RLIMIT_RTPRIO),
    ("rttime", libc::RLIMIT_RTTIME),
    ("sigpending", libc::RLIMIT_SIGPENDING),
    ("stack", libc::RLIMIT_STACK),
];

pub(crate) fn name(number: u32) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == number).map_or("limit", |(name, _)| name)
}

/// The defaults, overridden by the exec's own limits.
pub(crate) fn decide(
    defaults: &[(u32, u64, u64)],
    asked: &[Rlimit],
) -> Result<Vec<(u32, u64, u64)>, Failure> {
    let mut decided = defaults.to_vec();
    for Rlimit { resource, soft, hard } in asked {
        let invalid = |message| Failure::new(FailureKind::InvalidRequest, message);
        let known = NAMES.iter().find(|(name, _)| name == resource);
        let Some(&(_, number)) = known else {
            let shown: String = resource.chars().take(32).collect();
            return Err(invalid(format!("{shown:?} is not a resource limit")));
        };
        if soft > hard {
            return Err(invalid(format!(
                "the soft limit {soft} of {resource} is above the hard limit {hard}"
            )));
        }
        decided.retain(|(other, ..)| *other != number);
        decided.push((number, *soft, *hard));
    }
    Ok(decided)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_limits_replace_defaults_and_nonsense_is_refused() {
        let asked = |resource: &str, soft, hard| [Rlimit { resource: resource.to_owned(), soft, hard }];
        let defaults = [(libc::RLIMIT_NOFILE, 1, 2), (libc::RLIMIT_CORE, 0, 0)];
        assert_eq!(
            decide(&defaults, &asked("nofile", 5, 6)).unwrap(),
            [(libc::RLIMIT_CORE, 0, 0), (libc::RLIMIT_NOFILE, 5, 6)]
        );
        for bad in [asked("no_such", 1, 1), asked("NOFILE", 1, 1), asked("cpu", 2, 1)] {
            assert_eq!(decide(&defaults, &bad).unwrap_err().kind, FailureKind::InvalidRequest);
        }
    }
}
