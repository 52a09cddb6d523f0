//! Creates the images in `tests/images`. Needs root and a kernel with btrfs.

use std::process::ExitCode;

use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{self, Csum, Profile};
use ubtrfs_sim::matrix::{Case, Compression, Features};
use ubtrfs_sim::{Result, images};

const SEED: u64 = 2026;
/// About the minimum size that mkfs.btrfs accepts for every profile here.
const DEVICE_BYTES: u64 = 256 << 20;

fn cases() -> [(&'static str, Case); 6] {
    let default = Case::of_profile(Profile::Single);
    [
        ("crc32c-zstd", default),
        (
            "xxhash-lzo-4k-mixed",
            Case {
                csum: Csum::Xxhash,
                compression: Compression::Lzo,
                nodesize: 4096,
                features: Features::Mixed,
                ..default
            },
        ),
        (
            "sha256-zlib-oldest",
            Case {
                csum: Csum::Sha256,
                compression: Compression::Zlib,
                features: Features::Oldest,
                ..default
            },
        ),
        (
            "blake2-64k",
            Case {
                csum: Csum::Blake2,
                compression: Compression::None,
                nodesize: 65_536,
                ..default
            },
        ),
        ("raid1", Case::of_profile(Profile::Raid1)),
        ("raid5", Case::of_profile(Profile::Raid5)),
    ]
}

fn main() -> ExitCode {
    if let Err(why) = kernel::available() {
        eprintln!("make-test-images: {why}");
        return ExitCode::FAILURE;
    }
    for (name, case) in cases() {
        match make(name, case) {
            Ok(bytes) => println!("{name}: {} KiB", bytes / 1024),
            Err(error) => {
                eprintln!("make-test-images: {name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn make(name: &str, case: Case) -> Result<u64> {
    let filled = case.build_on(DEVICE_BYTES, &Scale::tiny(), SEED)?;
    filled.volume.check()?;
    images::keep(name, filled.volume.devices(), &filled.manifest)
}
