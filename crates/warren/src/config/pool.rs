//! The section `pool`: places that are made before sandboxes are asked for.

use backends::namespace::PoolConfig;
use toml::Value;

use super::count;

/// Most that may be asked for: each is a process with descriptors in the daemon.
const MAX_SIZE: usize = 256;

/// Sets a key of the section. The error describes the expected value.
pub(super) fn set(config: &mut PoolConfig, key: &str, value: &Value) -> Result<(), &'static str> {
    let count = count(value)?;
    match key {
        "pool.size" if count > MAX_SIZE => return Err("a number from 0 to 256"),
        "pool.size" => config.size = count,
        _ if count == 0 => return Err("a number of at least 1"),
        _ => config.from_rate = count,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_can_be_set_and_turned_off() {
        let set = |key: &str, value: i64| {
            let mut config = PoolConfig { size: 4, from_rate: 6 };
            set(&mut config, key, &Value::from(value)).map(|()| (config.size, config.from_rate))
        };
        assert_eq!(set("pool.size", 0), Ok((0, 6)));
        assert_eq!(set("pool.from_rate", 60), Ok((4, 60)));
        assert_eq!(set("pool.size", 257), Err("a number from 0 to 256"));
        assert_eq!(set("pool.from_rate", 0), Err("a number of at least 1"));
        assert_eq!(set("pool.size", -1), Err("a number that is not negative"));
    }
}
