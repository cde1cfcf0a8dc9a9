//! A cursor over untrusted bytes: every read is checked, nothing is allocated.

/// The rest of some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes, or a message that there are fewer.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            let left = self.rest.len();
            return Err(format!(
                "is truncated: it announces {len} bytes, {left} are left"
            ));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, String> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length of 4 bytes, then that many.
    pub(super) fn prefixed(&mut self) -> Result<&'a [u8], String> {
        let len = self.u32()?;
        self.take(to_usize(u64::from(len)))
    }

    /// A length of 4 bytes, then that much text.
    pub(super) fn text(&mut self) -> Result<&'a str, String> {
        let bytes = self.prefixed()?;
        std::str::from_utf8(bytes).map_err(|_| "contains a name that is not UTF-8".to_owned())
    }
}

/// A length as `usize`; one that does not fit exceeds any buffer.
pub(super) fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// A timestamp as a signed integer, which lasts until the year 2262.
pub(super) fn to_time(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
