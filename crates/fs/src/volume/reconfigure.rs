//! Options that change while the volume is open.

use ubtrfs_device::nonblocking;

use super::{OpenOptions, Volume};
use crate::error::Result;

impl Volume {
    /// Applies those `options` that can change while the volume is open. These are `compress`,
    /// `max_inline_bytes`, `no_data_cow`, `no_data_sum`, `flush_on_commit`, `lazy_times`, `discard`, and
    /// `commit_interval` if it was set before. Data written before may be stored either way.
    ///
    /// Errors: as `sync`.
    pub fn reconfigure(&self, options: &OpenOptions) -> Result<()> {
        nonblocking::check()?;
        let manager = self.inodes.transactions()?;
        if let Some(interval) = options.commit_interval {
            manager.threads.set_commit_interval(interval);
        }
        manager.discard.set_mode(options.transaction.discard.mode);
        self.roots.set_new_file_flags(options.data.new_file_flags());
        let settings = &self.inodes.settings;
        settings.set_max_inline_bytes(options.data.max_inline_bytes);
        settings.set_flush_on_commit(options.data.flush_on_commit);
        if settings.expect_compression(&options.data.compress) {
            // Data written before has smaller reservations, for uncompressed extents only. The next sync of a
            // file reports its write-back error.
            let _ = self.files.write_back_all();
        }
        settings.set_compress(options.data.compress);
        self.set_lazy_times(options.lazy_times)
    }
}
