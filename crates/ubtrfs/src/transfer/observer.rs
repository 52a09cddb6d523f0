//! Progress and problems of a transfer of files.

/// An observer of a transfer. Paths are the paths of the source, for messages, and may contain any bytes.
pub(crate) trait Observer<P> {
    /// Receives each file before its transfer.
    fn begin(&mut self, path: &[u8]) {
        let _ = path;
    }

    /// Receives the length of each transferred part of data.
    fn transferred(&mut self, len_bytes: u64) {
        let _ = len_bytes;
    }

    /// Returns whether to cancel the transfer now. Called before each file and each part of its data.
    fn is_cancelled(&mut self) -> bool {
        false
    }

    /// Receives a problem with the file at `path`. The transfer continues.
    fn failed(&mut self, path: &[u8], problem: P);
}
