//! Files with fs-verity can be read but not changed, as a kernel would then refuse to read them.

use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;

use super::fixture::{MIB, Rig, options, set_flags};
use crate::Error;
use crate::file::Fallocate;

#[test]
fn data_with_verity_is_read_and_not_changed() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let (file, other) = (rig.file(InodeFlags::empty()), rig.file(InodeFlags::empty()));
    let volume = rig.volume();
    let data = vec![7; 100_000];
    for id in [file, other] {
        volume.write(id, 0, &data).unwrap();
    }
    volume.sync().unwrap();
    set_flags(volume, file, InodeFlags::RO_VERITY);
    let refused = [
        volume.write(file, 0, b"x").map(drop),
        volume.write(file, 0, &vec![1; 2 << 20]),
        volume.write_direct(file, 0, &[1; 4096]),
        volume.append(file, b"x").map(drop),
        volume.truncate(file, 5),
        volume.fallocate(file, Fallocate::PunchHole, 0, 4096),
        volume.clone_range(other, 0, 4096, file, 0).map(drop),
        volume.copy_range(other, 0, 100, file, 0).map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert!(
            matches!(refused, Err(Error::NotPermitted(id)) if id == file),
            "{number}: {refused:?}"
        );
    }
    // Other files may share its extents.
    volume.clone_range(file, 0, 4096, other, 8192).unwrap();
    let mut found = vec![0; data.len()];
    volume.read(file, 0, &mut found).unwrap();
    assert!(found == data);
}
