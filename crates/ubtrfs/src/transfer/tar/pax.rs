//! Records of a PAX extended header: "LENGTH KEY=VALUE\n", where the length counts itself.

use ubtrfs_fs::FileTime;

#[cfg(test)]
mod tests;

const NSEC_PER_SEC: u32 = 1_000_000_000;

#[derive(Debug, Default)]
pub(super) struct PaxRecords {
    bytes: Vec<u8>,
}

impl PaxRecords {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        // Space, '=' and newline.
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() != len {
            len = rest + len.to_string().len();
        }
        self.bytes.extend_from_slice(len.to_string().as_bytes());
        for part in [b" ", key, b"=", value, b"\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    pub(super) fn push_number(&mut self, key: &str, value: u64) {
        self.push(key.as_bytes(), value.to_string().as_bytes());
    }

    pub(super) fn push_time(&mut self, key: &str, time: FileTime) {
        self.push(key.as_bytes(), time_text(time).as_bytes());
    }

    /// Adds a record of an extended attribute. Keys cannot contain '=': like GNU tar, this writes it, and '%', in
    /// hexadecimal.
    pub(super) fn push_xattr(&mut self, name: &[u8], value: &[u8]) {
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in name {
            match byte {
                b'=' => key.extend_from_slice(b"%3D"),
                b'%' => key.extend_from_slice(b"%25"),
                byte => key.push(byte),
            }
        }
        self.push(&key, value);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Formats seconds as a decimal fraction. Before 1970, nanoseconds count forward on disk, but a negative fraction
/// counts them backward.
fn time_text(time: FileTime) -> String {
    let nsec = time.nsec.min(NSEC_PER_SEC - 1);
    let (sign, sec, nsec) = match (time.sec < 0, nsec) {
        (false, nsec) => ("", time.sec.unsigned_abs(), nsec),
        (true, 0) => ("-", time.sec.unsigned_abs(), 0),
        (true, nsec) => ("-", time.sec.unsigned_abs() - 1, NSEC_PER_SEC - nsec),
    };
    match nsec {
        0 => format!("{sign}{sec}"),
        nsec => format!("{sign}{sec}.{nsec:09}"),
    }
}
