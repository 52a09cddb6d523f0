//! Calls that both sides implement.

use crate::Outcome;

/// A file name with a terminating NUL for system calls.
pub(crate) struct Name {
    bytes: Vec<u8>,
}

impl Name {
    pub(crate) fn new() -> Name {
        Name { bytes: Vec::new() }
    }

    /// Sets the name to `prefix` followed by a number.
    pub(crate) fn set(&mut self, prefix: &str, number: u64) -> &Name {
        // Formatted by hand, because the following call is measured.
        let mut digits = [0; 20];
        let mut first = digits.len();
        let mut rest = number;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(prefix.as_bytes());
        self.bytes.extend_from_slice(&digits[first..]);
        self.bytes.push(0);
        self
    }

    pub(crate) fn c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_with_nul(&self.bytes).expect("written with one NUL")
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - 1]
    }
}

/// One side of the comparison. Uses handles of directories and files, as fast as its interface allows.
pub(crate) trait Side: Sync {
    type Dir: Sync + Send;
    type File: Sync + Send;

    fn mkdir(&self, name: &Name) -> Outcome<Self::Dir>;
    fn rmdir(&self, name: &Name) -> Outcome;
    fn create(&self, dir: &Self::Dir, name: &Name) -> Outcome;
    fn open(&self, dir: &Self::Dir, name: &Name) -> Outcome<Self::File>;
    fn open_to_append(&self, dir: &Self::Dir, name: &Name) -> Outcome<Self::File>;
    /// Looks the name up.
    fn find(&self, dir: &Self::Dir, name: &Name) -> Outcome;
    fn stat_name(&self, dir: &Self::Dir, name: &Name) -> Outcome;
    fn stat(&self, file: &Self::File) -> Outcome;
    fn append(&self, file: &Self::File, bytes: &[u8]) -> Outcome;
    fn write(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> Outcome;
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Outcome;
    fn rename(&self, dir: &Self::Dir, from: &Name, to: &Name) -> Outcome;
    fn unlink(&self, dir: &Self::Dir, name: &Name) -> Outcome;
    /// Calls `each` with the names as the directory lists them.
    fn list(&self, dir: &Self::Dir, each: &mut dyn FnMut(&[u8])) -> Outcome;
    fn sync(&self) -> Outcome;
    /// Returns the bytes written to the device so far. Complete only after a sync.
    fn written_bytes(&self) -> Outcome<u64>;
}
