//! Test only: the kernel's btrfs as an oracle, images that it made, and a model of what it does.
//!
//! Reading (`kernel_oracle`). A conformance test asks `matrix` for cases. `kernel` makes and mounts a volume, and
//! `fill` puts the hard cases of the format into it. The test compares the `manifest` that the kernel shows with
//! that of another reader.
//!
//! Images (`crafted_images`). `images` has a few such volumes ready, for machines without root or kernel btrfs.
//! `craft` makes volumes that no kernel would make, `damage` breaks what a volume must survive.
//!
//! Writing (`model_oracle`). `script` does random operations to a file system and to the `model` at once, and
//! compares. The operations are those of `vocabulary`. The model is proven against the kernel in the same way.
//!
//! Devices (`devices`). `record` keeps what devices are asked and gives the images that power cuts leave, which
//! `oracle` judges. `fault` makes a device fail. A `SlowDevice` has nothing at hand, writes of a `ThrottledDevice`
//! take long, and a `HookedDevice` calls back. `new_volume` makes a volume in memory, as mkfs does.

mod crafted_images;
mod devices;
mod error;
mod kernel_oracle;
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

pub use crafted_images::{craft, damage, images};
pub use devices::{
    DiscardTime, HookedDevice, Rate, Request, SlowDevice, ThrottledDevice, fault, new_volume,
    new_volume_on, record,
};
pub use error::Error;
pub use kernel_oracle::{fill, kernel, manifest, matrix};
pub use model_oracle::{model, oracle, script};
pub use progress::Progress;
pub use raw_ioctl::{ioctl_bytes, raw_ioctl};
pub use rights::{is_root, with_roots_rights};
pub use rng::{Rng, seed};
pub use scratch::Scratch;
pub use skip::{has_fuse_or_skip, is_root_or_skip, skip, skip_optional};
pub use sparse_files::{fingerprint, read_data, read_sparse};

pub type Result<T, E = Error> = std::result::Result<T, E>;
