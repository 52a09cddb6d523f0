//! Subvolumes and snapshots: nested, read-only, mutual, changed afterwards, moved, deleted.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::{Kind, bytes, sync, write};
use crate::error::At;
use crate::program::run;
use crate::{Result, Rng};

pub(super) fn fill(dir: &Path, rng: &mut Rng) -> Result<()> {
    let outer = dir.join("outer");
    create(&outer)?;
    tree(&outer, rng)?;
    let inner = outer.join("inner");
    create(&inner)?;
    tree(&inner, rng)?;
    let innermost = inner.join("sub/innermost");
    create(&innermost)?;
    tree(&innermost, rng)?;
    let long_name = dir.join("s".repeat(255));
    create(&long_name)?;
    create(&dir.join("empty"))?;
    sync(dir)?;

    // The snapshots copy only the entry "inner" of the subvolume: an empty directory.
    snapshot(&outer, &dir.join("snap-ro"), true)?;
    snapshot(&outer, &dir.join("snap-rw"), false)?;
    change(&outer, rng)?;
    change(&dir.join("snap-rw"), rng)?;
    sync(dir)?;
    snapshot(&dir.join("snap-rw"), &dir.join("snap-of-snap"), true)?;
    change(&dir.join("snap-rw"), rng)?;
    // A snapshot inside of its own source.
    snapshot(&inner, &inner.join("snap-of-parent"), false)?;

    let moved = dir.join("empty-moved");
    fs::rename(dir.join("empty"), &moved).at("rename", &moved)?;

    // Extents shared between subvolumes without a snapshot.
    let source = outer.join("sub/text");
    let clone = moved.join("cloned-from-outer");
    let from = File::open(&source).at("open", &source)?;
    let to = File::create_new(&clone).at("create", &clone)?;
    rustix::fs::ioctl_ficlone(&to, &from).at("clone", &clone)?;

    // A gap in the ids, and extents whose owner was deleted.
    let doomed = dir.join("doomed");
    snapshot(&outer, &doomed, false)?;
    change(&doomed, rng)?;
    sync(dir)?;
    run(
        "btrfs",
        ["subvolume".as_ref(), "delete".as_ref(), doomed.as_os_str()],
    )?;
    // A sync wakes the cleaner, which otherwise runs every 30 seconds.
    for object in ["filesystem", "subvolume"] {
        let args = [object, "sync"].map(AsRef::as_ref);
        run("btrfs", args.into_iter().chain([dir.as_os_str()]))?;
    }
    Ok(())
}

fn create(path: &Path) -> Result<()> {
    let args = ["subvolume", "create"].map(AsRef::as_ref);
    run("btrfs", args.into_iter().chain([path.as_os_str()])).map(drop)
}

fn snapshot(of: &Path, to: &Path, read_only: bool) -> Result<()> {
    let mut args: Vec<&std::ffi::OsStr> = vec!["subvolume".as_ref(), "snapshot".as_ref()];
    if read_only {
        args.push("-r".as_ref());
    }
    args.extend([of.as_os_str(), to.as_os_str()]);
    run("btrfs", args).map(drop)
}

/// Creates a few files of every kind.
fn tree(dir: &Path, rng: &mut Rng) -> Result<()> {
    let sub = dir.join("sub");
    fs::create_dir(&sub).at("create", &sub)?;
    write(&sub.join("text"), bytes(Kind::Text, 50_000, rng))?;
    write(&sub.join("small"), b"inline")?;
    write(&dir.join("zeros"), bytes(Kind::Zeros, 100_000, rng))?;
    for number in 0..60 {
        let path = sub.join(format!("file-{number}"));
        write(&path, format!("file {number}"))?;
    }
    let link = dir.join("hard-link");
    fs::hard_link(sub.join("text"), &link).at("link", &link)?;
    let path = dir.join("sub/file-3");
    xattr::set(&path, "user.ubtrfs", b"in a subvolume").at("setxattr", &path)
}

/// Overwrites, adds, deletes and renames, so that shared blocks diverge.
fn change(dir: &Path, rng: &mut Rng) -> Result<()> {
    let text = dir.join("sub/text");
    let file = File::options().write(true).open(&text).at("open", &text)?;
    let offset = rng.below(40_000);
    let data = bytes(Kind::Text, 5000, rng);
    file.write_all_at(&data, offset).at("write", &text)?;
    for entry in fs::read_dir(dir.join("sub")).at("list", dir)? {
        let entry = entry.at("list", dir)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if !name.starts_with("file-") {
            continue;
        }
        match rng.below(8) {
            0 => fs::remove_file(&path).at("remove", &path)?,
            1 => write(&path, bytes(Kind::Text, 3000, rng))?,
            2 => {
                let to = dir.join(format!("{name}-moved-{}", rng.below(1 << 32)));
                fs::rename(&path, &to).at("rename", &to)?;
            }
            _ => {}
        }
    }
    let new = dir.join(format!("new-{}", rng.below(1 << 32)));
    write(&new, "added later")
}

/// Sets the default subvolume, which is used by a mount without options.
pub fn set_default_subvolume(path: &Path) -> Result<()> {
    let meta = fs::metadata(path).at("stat", path)?;
    debug_assert_eq!(meta.ino(), 256, "not the root of a subvolume");
    let args = ["subvolume", "set-default"].map(AsRef::as_ref);
    run("btrfs", args.into_iter().chain([path.as_os_str()])).map(drop)
}
