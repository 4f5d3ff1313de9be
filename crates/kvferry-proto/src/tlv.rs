//! Sections of a byte string: number, length, contents.
//!
//! A section is a 16-bit number, whose highest bit says that a reader who doesn't know it must
//! refuse the whole, a 32-bit length, and that many bytes. All integers are little-endian.

const CRITICAL: u16 = 0x8000;
const HEADER: usize = 6;

/// One section, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    /// The number, without the critical bit.
    pub(crate) id: u16,
    pub(crate) critical: bool,
    /// Where the contents begin in the string.
    pub(crate) at: usize,
    pub(crate) payload: &'a [u8],
}

/// Where a section is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutShort {
    pub(crate) at: usize,
}

/// Reads section by section; ends after the first error.
#[derive(Clone, Debug)]
pub(crate) struct Sections<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Sections<'a> {
    /// The sections that fill `data` from `at` on.
    pub(crate) fn new(data: &'a [u8], at: usize) -> Self {
        Self { data, at }
    }

    fn section(&self) -> Option<Section<'a>> {
        let (&[id_low, id_high, len @ ..], rest) = self.data.get(self.at..)?.split_first_chunk::<HEADER>()?;
        let tag = u16::from_le_bytes([id_low, id_high]);
        Some(Section {
            id: tag & !CRITICAL,
            critical: tag & CRITICAL != 0,
            at: self.at + HEADER,
            payload: rest.get(..u32::from_le_bytes(len) as usize)?,
        })
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<Section<'a>, CutShort>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.data.len() {
            return None;
        }
        let at = self.at;
        let section = self.section();
        self.at = section.map_or(self.data.len(), |section| section.at + section.payload.len());
        Some(section.ok_or(CutShort { at }))
    }
}

/// Appends a section to `out`. `fill` appends the contents, of less than 4 GiB.
pub(crate) fn push_section<E>(
    out: &mut Vec<u8>,
    id: u16,
    critical: bool,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let tag = if critical { id | CRITICAL } else { id };
    out.extend_from_slice(&tag.to_le_bytes());
    let len_at = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out)?;
    let len = (out.len() - len_at - 4) as u32;
    out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;
