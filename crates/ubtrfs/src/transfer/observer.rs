//! Progress and problems of a transfer of files, while it goes on.

/// A listener to a transfer. Paths are those of what is transferred, for messages: any bytes.
pub(crate) trait Observer<P> {
    /// Hears that the file at `path` is next.
    fn begin(&mut self, path: &[u8]) {
        let _ = path;
    }

    /// Hears that so many bytes of data were transferred.
    fn transferred(&mut self, len_bytes: u64) {
        let _ = len_bytes;
    }

    /// Tells whether the transfer is to end now. It is asked before each file and each part of its data.
    fn is_cancelled(&mut self) -> bool {
        false
    }

    /// Hears what went wrong at `path`. The transfer goes on.
    fn failed(&mut self, path: &[u8], problem: P);
}
