//! The roots of volumes for tests, without the layers above.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{Access, BlockDevice, Pool, PoolOptions};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_tree::StoreOptions;

use super::{Roots, RootsOptions};

/// Creates the pool of a volume on one device. The caller opens the volume with `open`.
pub(crate) fn pool_of(device: Arc<dyn BlockDevice>, access: Access) -> Pool {
    let devices = vec![(PathBuf::from("memory"), device)];
    Pool::from_devices(devices, &PoolOptions::default().access(access)).unwrap()
}

/// Opens the volume on `paths` for reading.
pub(crate) fn open_paths(paths: &[PathBuf]) -> Arc<Roots> {
    open(Pool::open(paths, &PoolOptions::default()).unwrap())
}

/// Opens a volume for reading.
pub(crate) fn open(pool: Pool) -> Arc<Roots> {
    open_with(pool, false, 256 << 20)
}

pub(crate) fn open_with(pool: Pool, writable: bool, cache_bytes: u64) -> Arc<Roots> {
    let superblock = pool.superblock().clone();
    let options = RootsOptions {
        ignore_bad_top_trees: false,
        writable,
        edits_trees: false,
        acls: true,
        new_file_flags: InodeFlags::empty(),
        lazy_times: false,
        lookup_bytes: 32 << 20,
        store: StoreOptions {
            cache_bytes,
            ..StoreOptions::default()
        },
    };
    Arc::new(Roots::open(&Arc::new(pool), superblock, &options).unwrap())
}
