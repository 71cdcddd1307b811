//! Extended attributes of open files.

use std::os::fd::BorrowedFd;

use rustix::{
    fs::{fgetxattr, flistxattr},
    io::Errno,
};

/// Longest list of names, and longest value, by the kernel.
const MAX_BYTES: usize = 64 * 1024;

/// Name and value.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// Reads attributes with one buffer for all files.
#[derive(Debug)]
pub struct AttributeReader {
    names: Vec<u8>,
    value: Vec<u8>,
}

impl Default for AttributeReader {
    fn default() -> Self {
        Self { names: vec![0; MAX_BYTES], value: vec![0; MAX_BYTES] }
    }
}

impl AttributeReader {
    /// Reads the attributes of an open file or directory that `is_kept` by name, in order.
    pub fn read(
        &mut self,
        file: BorrowedFd<'_>,
        is_kept: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Attribute>, Errno> {
        let length = match flistxattr(file, &mut self.names[..]) {
            // A file system without attributes.
            Err(Errno::OPNOTSUPP) => 0,
            listed => listed?,
        };
        let mut attributes = Vec::new();
        for name in self.names[..length].split(|&byte| byte == 0) {
            if name.is_empty() || !is_kept(name) {
                continue;
            }
            match fgetxattr(file, name, &mut self.value[..]) {
                // Gone meanwhile, or a capability that means nothing to our user namespace.
                Err(Errno::NODATA | Errno::OVERFLOW | Errno::OPNOTSUPP) => {}
                read => attributes.push((name.to_vec(), self.value[..read?].to_vec())),
            }
        }
        attributes.sort_unstable();
        Ok(attributes)
    }
}
