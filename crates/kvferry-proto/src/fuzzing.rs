//! The bodies of the fuzz targets, which the tests run as well.

mod channel;

use crate::blob::{Blob, sealed};
use crate::stream::{MAX_STREAM_SEGMENTS, STREAM_HEADER, StreamHeader, StreamSegment};

pub use self::channel::{frames, session};

/// Reads `data` as a metadata blob, and as the sections of one whose header is in order.
///
/// # Panics
/// What can be read is not the same after it is written and read again.
pub fn blob(data: &[u8]) {
    for bytes in [data, &sealed(data)] {
        let Ok(blob) = Blob::decode(bytes) else {
            continue;
        };
        let again = blob.encode().and_then(|bytes| Blob::decode(&bytes));
        assert_eq!(again.as_ref(), Ok(&blob), "{bytes:x?}");
    }
}

/// Reads `data` as a request of a data stream: a header, put in order, and what names its segments.
///
/// # Panics
/// What can be read is not the same after it is written and read again, or more was taken than a frame may hold.
pub fn stream(data: &[u8]) {
    let Some((head, names)) = data.split_first_chunk::<STREAM_HEADER>() else { return };
    let header = StreamHeader::decode(head);
    let count = header.map_or_else(|_| u16::from_le_bytes([head[2], head[3]]), |header| header.segments);
    let mut segments = Vec::new();
    let read = StreamSegment::decode(names, count, &mut segments);
    assert!(segments.len() <= MAX_STREAM_SEGMENTS.into());
    if read.is_ok() {
        let (mut bytes, mut again) = (Vec::new(), Vec::new());
        StreamSegment::encode(&segments, &mut bytes);
        assert_eq!(StreamSegment::decode(&bytes, count, &mut again), Ok(()), "{bytes:x?}");
        assert_eq!(again, segments);
    }
}

#[cfg(test)]
mod tests;
