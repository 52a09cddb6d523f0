//! Test support: the kernel's btrfs as an oracle, kept images, and a model of the file system.
//!
//! Reading (`kernel_oracle`). A conformance test gets cases from `matrix`. `kernel` creates and mounts a volume, and
//! `fill` writes edge cases of the format to it. The test compares the kernel's `manifest` with another reader's.
//!
//! Images (`crafted_images`). `images` has a few such volumes for machines without root or btrfs in the kernel.
//! `craft` makes volumes that no kernel would create, and `damage` breaks volumes in ways that they must survive. `nas`
//! puts the marks of NAS makers on volumes.
//!
//! Disks (`layered_disks`). `MdArray` and `LvmGroup` write the disks of a NAS box, without md and LVM in the kernel.
//!
//! Writing (`model_oracle`). `script` applies random operations to a file system and to the `model` in parallel, and
//! compares the results. The operations are defined in `vocabulary`. The model is verified against the kernel in the
//! same way.
//!
//! Devices (`devices`). `record` records requests and produces the images after power cuts, which `oracle` judges.
//! `fault` makes a device fail. A `SlowDevice` has no cached data, a `ThrottledDevice` has slow writes, and a
//! `HookedDevice` calls back. `new_volume` creates a volume in memory.

mod crafted_images;
mod devices;
mod error;
mod kernel_oracle;
mod layered_disks;
mod model_oracle;
mod program;
mod progress;
mod raw_ioctl;
mod rights;
mod rng;
mod scratch;
mod skip;
mod sparse_files;
mod vocabulary;
mod zeros;

pub use crafted_images::{craft, damage, images, nas};
pub use devices::{
    DiscardTime, HookedDevice, Rate, Request, SlowDevice, ThrottledDevice, fault, new_volume,
    new_volume_on, record,
};
pub use error::Error;
pub use kernel_oracle::{fill, kernel, manifest, matrix};
pub use layered_disks::{
    LvmGroup, LvmSegment, LvmVolume, MdArray, MdMetadata, seal_gpt, seal_lvm, seal_md,
};
pub use model_oracle::{model, oracle, script};
pub use progress::Progress;
pub use raw_ioctl::{ioctl_bytes, raw_ioctl};
pub use rights::{is_root, with_roots_rights};
pub use rng::{Rng, seed};
pub use scratch::{Scratch, share_program};
pub use skip::{has_fuse_or_skip, is_in_first_pid_namespace, is_root_or_skip, skip, skip_optional};
pub use sparse_files::{fingerprint, read_data, read_sparse};

pub type Result<T, E = Error> = std::result::Result<T, E>;
