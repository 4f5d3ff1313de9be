//! The bodies of the fuzz targets, which the tests run as well.

mod channel;

use crate::blob::{Blob, sealed};

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

#[cfg(test)]
mod tests;
