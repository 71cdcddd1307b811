//! Just enough netlink: requests are built attribute by attribute, sent in one call, and checked for errors.
//!
//! The kernel handles these requests within the call that sends them, so all answers are there when it returns.

use std::{io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};

/// Lengths and positions are multiples of this.
const ALIGNMENT: usize = 4;
/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_BYTES: usize = 16;
/// Room for one answer, which repeats at most the header of the request with an error.
const ANSWER_BYTES: usize = 8 * 1024;

/// Links, addresses and routes: protocol 0.
pub(crate) const ROUTES: Option<Protocol> = None;
pub(crate) const NETFILTER: Option<Protocol> = Some(rustix::net::netlink::NETFILTER);

const REQUEST: u16 = 0x1;
pub(crate) const ACKNOWLEDGE: u16 = 0x4;
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;

const ANSWER_IS_RESULT: u16 = 2;
const NESTED: u16 = 0x8000;

/// Messages that are sent to the kernel in one call.
#[derive(Debug, Default)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    n_messages: u32,
    n_acknowledged: usize,
}

impl Request {
    /// Adds a message: `head` is the fixed structure of its kind, and the attributes follow.
    pub(crate) fn add(&mut self, kind: u16, flags: u16, head: &[u8], fill: impl FnOnce(&mut Attributes<'_>)) {
        self.n_messages += 1;
        self.n_acknowledged += usize::from(flags & ACKNOWLEDGE != 0);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.n_messages.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(head);
        pad(&mut self.bytes);
        fill(&mut Attributes(&mut self.bytes));
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Sends everything, and returns the first error of any message.
    pub(crate) fn send(&self, protocol: Option<Protocol>) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        send(&socket, &self.bytes, SendFlags::empty())?;
        let mut n_left = self.n_acknowledged;
        while n_left > 0 {
            n_left = n_left.saturating_sub(take_answers(&socket)?);
        }
        Ok(())
    }
}

/// The number of successful results in the next packet of answers.
fn take_answers(socket: &OwnedFd) -> io::Result<usize> {
    let mut buffer = [0; ANSWER_BYTES];
    let (length, _) = recv(socket, &mut buffer, RecvFlags::DONTWAIT).map_err(|error| match error {
        Errno::AGAIN => io::Error::new(io::ErrorKind::InvalidData, "the kernel did not answer"),
        error => error.into(),
    })?;
    let mut n_results = 0;
    let mut rest = &buffer[..length.min(buffer.len())];
    while let Some(answer) = Answer::first(rest) {
        if answer.kind == ANSWER_IS_RESULT {
            if answer.result != 0 {
                return Err(io::Error::from_raw_os_error(-answer.result));
            }
            n_results += 1;
        }
        rest = rest.get(aligned(answer.length)..).unwrap_or_default();
    }
    Ok(n_results)
}

struct Answer {
    length: usize,
    kind: u16,
    /// Zero, or a negative error number.
    result: i32,
}

impl Answer {
    fn first(bytes: &[u8]) -> Option<Self> {
        let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
        let result = i32::from_ne_bytes(*bytes.get(HEADER_BYTES..)?.first_chunk()?);
        (length >= HEADER_BYTES).then_some(Self { length, kind, result })
    }
}

/// The attributes of a message, or of another attribute.
#[derive(Debug)]
pub(crate) struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.filled(kind, |bytes| bytes.extend_from_slice(value))
    }

    /// A number in the byte order of this machine, as in messages about links, addresses and routes.
    pub(crate) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// A number in network byte order, as in messages of nftables.
    pub(crate) fn network_number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.filled(kind, |bytes| {
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        })
    }

    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.filled(kind | NESTED, |bytes| fill(&mut Attributes(bytes)))
    }

    fn filled(&mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        fill(self.0);
        // Padding is not counted.
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        pad(self.0);
        self
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(aligned(bytes.len()), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `RTM_GETLINK` for one link, which anybody may ask; its answer ends with a result if one is asked for.
    const GET_LINK: u16 = 18;

    fn look_up(link: u32) -> io::Result<()> {
        let mut head = [0; 16];
        head[4..8].copy_from_slice(&link.to_ne_bytes());
        let mut request = Request::default();
        request.add(GET_LINK, ACKNOWLEDGE, &head, |_| {});
        request.send(ROUTES)
    }

    #[test]
    fn the_kernel_answers_success_and_errors() {
        look_up(1).unwrap();
        assert_eq!(look_up(0x7fff_0000).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn attributes_are_padded_and_their_lengths_are_not() {
        let mut bytes = Vec::new();
        Attributes(&mut bytes).nested(1, |inner| {
            inner.text(2, "ab").network_number(3, 1);
        });
        let mut expected = Vec::new();
        for half in [20_u16, 1 | NESTED, 7, 2] {
            expected.extend_from_slice(&half.to_ne_bytes());
        }
        expected.extend_from_slice(b"ab\0\0");
        for half in [8_u16, 3] {
            expected.extend_from_slice(&half.to_ne_bytes());
        }
        expected.extend_from_slice(&[0, 0, 0, 1]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn short_answers_are_no_answers() {
        assert!(Answer::first(&[]).is_none());
        assert!(Answer::first(&[0; 19]).is_none());
        assert!(Answer::first(&[0; 20]).is_none(), "its length says nothing is there");
    }
}
