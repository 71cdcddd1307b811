//! Limits, written as Kubernetes writes them.

use std::collections::BTreeMap;

use sandbox::{CpuCount, Error, ErrorKind, Limits, Result};

use super::handle::shown;

/// `cpu`, `memory` and `disk`. What is absent gets the daemon's default.
pub(super) fn limits(asked: &BTreeMap<String, String>) -> Result<Limits> {
    let mut limits = Limits::default();
    for (name, value) in asked {
        let wrong = |what: &str| Error::invalid(format!("resource {name}: {:?} is not {what}", shown(value)));
        match name.as_str() {
            "cpu" => {
                limits.cpus = Some(cpus(value).ok_or_else(|| wrong("a number of processors such as 500m"))?);
            }
            "memory" => {
                limits.memory = Some(value.parse().map_err(|_not_one| wrong("a size such as 512Mi"))?);
            }
            "disk" | "ephemeral-storage" => {
                limits.disk = Some(value.parse().map_err(|_not_one| wrong("a size such as 10Gi"))?);
            }
            "gpu" | "nvidia.com/gpu" => {
                let message = format!("resource {name} cannot be met: sandboxes have no GPU");
                return Err(Error::new(ErrorKind::Unsupported, message).with_hint("Omit it."));
            }
            _ => {
                return Err(Error::invalid(format!("unknown resource {:?}", shown(name)))
                    .with_hint("Resources are cpu, memory and disk."));
            }
        }
    }
    Ok(limits)
}

/// `2`, `0.5` or `500m`.
fn cpus(text: &str) -> Option<CpuCount> {
    match text.strip_suffix('m') {
        Some(millis) => {
            Some(CpuCount { millis: millis.parse().ok().filter(|n| (1..=4_096_000).contains(n))? })
        }
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use sandbox::ByteSize;

    use super::*;

    fn asked(name: &str, value: &str) -> Result<Limits> {
        limits(&[(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn quantities_are_read() {
        for (text, millis) in [("1", 1000), ("500m", 500), ("0.25", 250)] {
            assert_eq!(asked("cpu", text).unwrap().cpus, Some(CpuCount { millis }), "{text}");
        }
        assert_eq!(asked("memory", "2Gi").unwrap().memory, Some(ByteSize::gib(2)));
        assert_eq!(asked("disk", "10Gi").unwrap().disk, Some(ByteSize::gib(10)));
        for (name, text) in
            [("cpu", "many"), ("cpu", "0m"), ("cpu", "-1"), ("memory", "2Xi"), ("tpu", "1"), ("gpu", "1")]
        {
            assert!(asked(name, text).is_err(), "{name} {text}");
        }
    }
}
