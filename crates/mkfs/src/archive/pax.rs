//! Records of extended headers: "LENGTH KEY=VALUE\n", where the length includes itself. Values are bytes and may
//! contain newlines.

use std::collections::BTreeMap;

use ubtrfs_format::item::FileTime;

#[cfg(test)]
mod tests;

const XATTR: &[u8] = b"SCHILY.xattr.";

/// The records of extended headers of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaxRecords {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// GNU sparse maps of version 0.0 repeat their keys.
    pub(super) sparse_parts: Vec<(u64, u64)>,
    /// The total length of keys and values.
    pub(super) len_bytes: u64,
}

impl PaxRecords {
    /// Adds the records of a header, which override existing ones. Returns None if they are malformed.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Option<()> {
        let mut offset = None;
        // Some writers pad with zeros.
        while !bytes.is_empty() && bytes[0] != 0 {
            let space = bytes.iter().position(|&byte| byte == b' ')?;
            let len = number(&bytes[..space])? as usize;
            let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|&byte| byte == b'=')?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"GNU.sparse.offset" => offset = Some(number(value)?),
                b"GNU.sparse.numbytes" => {
                    self.sparse_parts.push((offset.take()?, number(value)?));
                }
                // An empty value removes the record of a global header.
                key if value.is_empty() && !key.starts_with(XATTR) => {
                    self.forget(key);
                }
                key => {
                    self.forget(key);
                    self.values.insert(key.to_vec(), value.to_vec());
                    self.len_bytes += record.len() as u64;
                }
            }
            bytes = &bytes[len..];
        }
        Some(())
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(value) = self.values.remove(key) {
            // Includes the "=".
            self.len_bytes -= (key.len() + 1 + value.len()) as u64;
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key.as_bytes()).map(Vec::as_slice)
    }

    /// Returns a number. Some(None) means that the value is not a number.
    pub(super) fn number(&self, key: &str) -> Option<Option<u64>> {
        self.get(key).map(number)
    }

    /// Returns a time. Some(None) means that the value is not a time.
    pub(super) fn time(&self, key: &str) -> Option<Option<FileTime>> {
        self.get(key).map(time)
    }

    /// Returns the extended attributes, sorted by name.
    pub(super) fn xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let from = self.values.range(XATTR.to_vec()..);
        let own = from.take_while(|(key, _)| key.starts_with(XATTR));
        let mut xattrs: Vec<_> = own
            .map(|(key, value)| (unescape(&key[XATTR.len()..]), value.clone()))
            .collect();
        xattrs.sort_unstable();
        xattrs
    }
}

/// Unescapes the name in a key. A key cannot contain '=', so GNU tar writes '=' and '%' in hexadecimal.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'%', b'3', b'D', after @ ..] => (b'=', after),
            [b'%', b'2', b'5', after @ ..] => (b'%', after),
            _ => (byte, after),
        };
        out.push(byte);
        rest = after;
    }
    out
}

/// Parses a decimal number without a sign.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_decimal)?;
    text.parse().ok()
}

/// Parses seconds with a decimal fraction. The nanoseconds of times before 1970 count forward.
fn time(text: &[u8]) -> Option<FileTime> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b""[..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let sec = i64::try_from(number(whole)?).ok()?;
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0'));
    let nsec = digits
        .take(9)
        .fold(0, |nsec, digit| nsec * 10 + u32::from(digit - b'0'));
    Some(match (is_negative, nsec) {
        (false, nsec) => FileTime { sec, nsec },
        (true, 0) => FileTime { sec: -sec, nsec: 0 },
        (true, nsec) => FileTime {
            sec: -sec - 1,
            nsec: 1_000_000_000 - nsec,
        },
    })
}
