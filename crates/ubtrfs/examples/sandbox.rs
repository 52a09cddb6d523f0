//! A sandbox that is rolled back: work on a writable snapshot, then keep it or throw it away.

use ubtrfs::{Access, Subvolume, Volume};

fn main() -> Result<(), ubtrfs::Error> {
    let volume = Volume::in_memory(256 << 20)?;
    let root = volume.root();
    root.create_subvolume("/base")?;
    root.create_dir_all("/base/etc")?;
    root.write("/base/etc/version", b"1")?;

    for attempt in 1..=2 {
        let work = root.snapshot("/base", "/work", Access::Writable)?;
        let good = upgrade(&work, attempt)?;
        if good {
            // The result replaces the base.
            root.delete_subvolume("/base")?;
            root.rename("/work", "/base")?;
        } else {
            root.delete_subvolume("/work")?;
        }
        println!(
            "attempt {attempt}: {}, version {}",
            if good { "kept" } else { "rolled back" },
            String::from_utf8_lossy(&root.read("/base/etc/version")?),
        );
    }
    assert_eq!(root.read("/base/etc/version")?, b"2");
    volume.sync()
}

/// Upgrades the files of `work`, and fails half-way at its first attempt.
fn upgrade(work: &Subvolume, attempt: u32) -> Result<bool, ubtrfs::Error> {
    work.write("/etc/version", b"2")?;
    if attempt == 1 {
        return Ok(false);
    }
    work.write("/etc/motd", b"upgraded")?;
    Ok(true)
}
