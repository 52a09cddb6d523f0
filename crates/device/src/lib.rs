//! Block devices, the set of devices of one volume, the chunk map and verified reads.
//!
//! A volume is a [`Pool`]: the devices of one fsid, the newest superblock, and the map from logical addresses to
//! stripes. Reads use this map, try the mirrors one after the other, and report errors. This layer cannot read trees:
//! its callers pass it the items of the chunk tree. It computes the placement and the items of new chunks
//! ([`chunk_layout`]); callers insert these.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access;
mod block_device;
mod block_discard;
mod callers_lock;
pub mod chunk_layout;
mod chunk_map;
mod chunk_problem;
mod claim;
pub mod clock;
mod device_name;
mod discard_geometry;
mod errno;
mod error;
mod file;
mod file_clone;
mod find_signatures;
mod lock;
mod lock_table;
mod loop_device;
mod loop_status;
mod mark;
mod memory;
mod memory_limit;
mod new_device;
pub mod nonblocking;
mod overwrite;
mod parity;
mod pool;
mod process;
pub mod progress;
mod random;
mod read_errors;
mod registration;
mod scan;
mod scrub_progress;
mod siblings;
mod signature;
mod stripes;
mod superblock;
#[cfg(test)]
mod test_volume;
pub mod thread;
mod uring;

pub use access::Access;
pub use block_device::{BlockDevice, DeviceDiscard, DeviceRead, DeviceWrite, PastEnd};
pub use chunk_map::{ChunkMap, ChunkStripe, MappedChunk, STRIPE_LEN};
pub use chunk_problem::ChunkProblem;
pub use claim::DeviceClaim;
pub use device_name::{DeviceName, DeviceUri, UnsupportedScheme};
pub use discard_geometry::DiscardGeometry;
pub use errno::{errno_of, kind_of};
pub use error::{
    Attempt, AttemptProblem, DeviceError, Holder, ReadFailure, SoundCopy, SuperblockChange,
};
pub use file::FileDevice;
pub use find_signatures::{FoundSignature, find_signature, find_signatures};
pub use loop_device::{LoopDevice, backing_file, forget_pages};
pub use memory::MemDevice;
pub use memory_limit::{memory_limit, memory_limit_of_groups, memory_of_machine};
pub use new_device::empty_device;
pub use overwrite::check_overwrite;
pub use parity::{TooManyLost, parity, rebuild};
pub use pool::{
    CheckedRead, CopyRange, DeviceInfo, DiscardCounts, ErrorCounts, GoodBlock, MemberDevice, Pool,
    PoolOptions, Reached,
};
pub use process::OpeningProcess;
pub use random::{random_uuid, random_words};
pub use read_errors::{ReadErrorKind, ReadErrorRecord};
pub use registration::{KernelRegister, register_with_kernel};
pub use scan::{FoundDevice, found_on, scan};
pub use scrub_progress::{DeviceScrub, ScrubCounts};
pub use siblings::{Beside, all_siblings, files_at, nearby, siblings};
pub use signature::Signature;
pub use stripes::{Piece, Row};
pub use superblock::{
    CopyChoice, CopyProblem, DeviceSuperblocks, SuperblockCopy, write_superblocks,
};
