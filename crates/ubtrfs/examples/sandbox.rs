//! A sandbox that is rolled back: work on a writable snapshot, then keep it or throw it away.

use ubtrfs::{Access, Volume};

fn main() -> Result<(), ubtrfs::Error> {
    let volume = Volume::in_memory(256 << 20)?;
    volume.create_subvolume("/base")?;
    volume.create_dir_all("/base/etc")?;
    volume.write("/base/etc/version", b"1")?;

    for attempt in 1..=2 {
        volume.snapshot("/base", "/work", Access::Writable)?;
        let work = volume.subvolume("/work")?;
        let good = upgrade(&work, attempt)?;
        if good {
            // The result takes the base's place.
            volume.delete_subvolume("/base")?;
            volume.rename("/work", "/base")?;
        } else {
            volume.delete_subvolume("/work")?;
        }
        println!(
            "attempt {attempt}: {}, version {}",
            if good { "kept" } else { "rolled back" },
            String::from_utf8_lossy(&volume.read("/base/etc/version")?),
        );
    }
    assert_eq!(volume.read("/base/etc/version")?, b"2");
    volume.sync()
}

/// Work that fails half-way at its first attempt.
fn upgrade(work: &Volume, attempt: u32) -> Result<bool, ubtrfs::Error> {
    work.write("/etc/version", b"2")?;
    if attempt == 1 {
        return Ok(false);
    }
    work.write("/etc/motd", b"upgraded")?;
    Ok(true)
}
