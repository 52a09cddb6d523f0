//! The errno of a request for each failure of a device. Other errors keep the engine's, which tests of the library list.

use std::io;
use std::path::PathBuf;

use ubtrfs_device::{ChunkProblem, DeviceName, Holder};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Logical, Physical};
use ubtrfs_format::superblock::SuperblockError;
use ubtrfs_format::uuid::Uuid;

use super::*;

const AT: Logical = Logical(1 << 20);
const DEVICE: DevId = DevId(1);
const UUID: Uuid = Uuid([1; 16]);

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn path() -> PathBuf {
    PathBuf::from("image")
}

/// Compares rows of a variant, an example of it, and its errno. A variant without a row does not compile, except for
/// the variants of superblocks that forbid writing: a mount fails with them, and no request.
macro_rules! rows {
    ($($variant:ident: $example:expr => $errno:ident;)*) => {
        let _every_variant = |error: &DeviceError| match error {
            $(DeviceError::$variant { .. } => {})*
            DeviceError::FirstSuperblock { .. }
            | DeviceError::Foreign { .. }
            | DeviceError::Changed { .. } => {}
        };
        let rows = [$((stringify!($variant), $example, rustix::io::Errno::$errno)),*];
        for (variant, error, wanted) in rows {
            assert_eq!(errno(error.into()), Errno::from(wanted), "{variant}");
        }
    };
}

#[test]
fn failing_device_is_eio_and_damage_is_not() {
    rows! {
        WouldBlock: DeviceError::WouldBlock(ubtrfs_device::nonblocking::WouldBlock) => AGAIN;
        NoDevice: DeviceError::NoDevice => INVAL;
        Open: DeviceError::Open { path: path(), source: full() } => IO;
        Kind: DeviceError::Kind { path: path(), kind: "a pipe" } => INVAL;
        InUse: DeviceError::InUse { path: path(), holder: Holder::Kernel } => BUSY;
        HoldsVolume: DeviceError::HoldsVolume { path: path() } => BUSY;
        ReadRaw: DeviceError::ReadRaw { path: path(), offset: 0, len: 1, source: full() } => IO;
        WriteRaw: DeviceError::WriteRaw { path: path(), offset: 0, len: 1, source: full() } => IO;
        Flush: DeviceError::Flush { path: path(), source: full() } => IO;
        Discard: DeviceError::Discard { path: path(), offset: 0, len: 1, source: full() } => IO;
        NoCopy: DeviceError::NoCopy { logical: AT } => ROFS;
        NoReplacement: DeviceError::NoReplacement { devid: DEVICE } => INVAL;
        ReplacementFailed: DeviceError::ReplacementFailed { path: path(), reason: String::new() } => IO;
        ParityWrite: DeviceError::ParityWrite { logical: AT } => ROFS;
        NotBtrfs: DeviceError::NotBtrfs { path: path(), holds: None } => INVAL;
        TotalBytes: DeviceError::TotalBytes { total_bytes: 1, devices_bytes: 2 } => ROFS;
        DeviceFsid: DeviceError::DeviceFsid { devid: DEVICE, item: UUID, device: UUID } => ROFS;
        Incomplete: DeviceError::Incomplete { path: path() } => UCLEAN;
        Superblock: DeviceError::Superblock { path: path(), offset: 0, source: SuperblockError::Magic } => UCLEAN;
        Unsupported: DeviceError::Unsupported { path: path(), source: SuperblockError::Magic } => OPNOTSUPP;
        OtherVolume: DeviceError::OtherVolume { path: path(), wanted: UUID, found: UUID } => INVAL;
        DuplicateDevice: DeviceError::DuplicateDevice { devid: DEVICE, generations: [1, 1], first: path(), second: path() } => INVAL;
        Ambiguous: DeviceError::Ambiguous { devid: DEVICE, first: path(), second: path() } => INVAL;
        Missing: DeviceError::Missing { devid: DEVICE, uuid: UUID } => IO;
        Truncated: DeviceError::Truncated { path: path(), devid: DEVICE, len_bytes: 0, total_bytes: 1 } => UCLEAN;
        Chunk: DeviceError::Chunk { logical: AT, problem: ChunkProblem::SubStripes(1) } => UCLEAN;
        Scheme: DeviceError::from(DeviceName::from("nbd://h/e").path().unwrap_err()) => OPNOTSUPP;
        Unwritable: DeviceError::Unwritable { logical: AT, profile: Profile::Raid1, missing: 1 } => ROFS;
        NoChunk: DeviceError::NoChunk { logical: AT } => UCLEAN;
        NoMirror: DeviceError::NoMirror { logical: AT, mirror: 2, mirrors: 1 } => UCLEAN;
        Read: DeviceError::Read { devid: DEVICE, physical: Physical(0), logical: AT, len: 1, source: full() } => IO;
        Rebuild: DeviceError::Rebuild { logical: AT, lost: 2, parities: 1 } => UCLEAN;
    }
    let of_space = SpaceError::Device(DeviceError::Missing {
        devid: DEVICE,
        uuid: UUID,
    });
    assert_eq!(errno(of_space.into()), Errno::IO);
    assert_eq!(errno(Error::NoSpace), Errno::from(rustix::io::Errno::NOSPC));
}
