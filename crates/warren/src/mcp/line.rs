//! Lines of bounded length.

use std::io;

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt},
    sync::mpsc,
};

/// Maximum number of queued lines.
const QUEUE: usize = 16;

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, with its newline.
    Whole(Vec<u8>),
    /// The line was too long, and was dropped.
    TooLong,
    /// The other end was closed before it had read everything that was written to it.
    Reset,
}

/// The lines of a reader, as a queue that ends with it. A task does the reading, so that `select!` cannot lose data.
pub(super) fn queue(
    mut reader: impl AsyncBufRead + Unpin + Send + 'static,
    max: usize,
) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        loop {
            let line = match read(&mut reader, max).await {
                Ok(Some(line)) => line,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Line::Reset,
                Ok(None) | Err(_) => return,
            };
            let is_end = line == Line::Reset;
            if sender.send(line).await.is_err() || is_end {
                return;
            }
        }
    });
    receiver
}

/// The next line, or none at the end. An incomplete line at the end is dropped.
async fn read(reader: &mut (impl AsyncBufRead + Unpin), max: usize) -> io::Result<Option<Line>> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(None);
        }
        let end = available.iter().position(|byte| *byte == b'\n').map(|index| index + 1);
        let taken = end.unwrap_or(available.len());
        is_too_long |= line.len() + taken > max;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(&available[..taken]);
        }
        reader.consume(taken);
        if end.is_some() {
            return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(line) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_or_are_left_out() {
        let mut input = &b"ab\nabcdef\n\ncd"[..];
        let mut next = async || read(&mut input, 3).await.unwrap();
        assert_eq!(next().await, Some(Line::Whole(b"ab\n".to_vec())));
        assert_eq!(next().await, Some(Line::TooLong));
        assert_eq!(next().await, Some(Line::Whole(b"\n".to_vec())));
        assert_eq!(next().await, None);
    }
}
