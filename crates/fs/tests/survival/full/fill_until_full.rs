//! Ways to fill a volume until it is full, and to empty it.

use std::time::Duration;
use ubtrfs_fs::XattrMode;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{Compress, Error, Fallocate, Result, SetAttr};
use ubtrfs_sim::Rng;
use ubtrfs_sim::fill;

use super::place::{Place, noise};
use super::{Way, prove};
use crate::devices::{Layout, MIB, quiet};
use crate::soak::count;

const MANY: u64 = 500;

/// Returns a small layout that is full soon. It is larger in a soak.
fn small() -> Layout {
    let mib = count(48, 256) as u64;
    Layout::new(1, mib * MIB).profiles(Profile::Single, Profile::Single)
}

/// Returns a smaller layout for tests that fill metadata, which takes longer.
fn smaller() -> Layout {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => small(),
        None => mixed(),
    }
}

fn mixed() -> Layout {
    Layout::new(1, 24 * MIB).mixed().nodesize(4096)
}

/// Writes a file of a random size, so that there are files of all sizes.
fn mix(place: &Place, number: u64) -> Result<()> {
    let most = [100, 3000, 30_000, 600_000][number as usize % 4];
    let len = Rng::new(number).below(most) as usize;
    place.dir(&format!("dir-{}", number / MANY))?;
    place.write(&format!("dir-{}/file-{number}", number / MANY), 0, len)
}

#[test]
fn empty_files() {
    let step = |place: &Place, number| {
        place.dir(&format!("dir-{}", number / MANY))?;
        place
            .file(&format!("dir-{}/file-{number}", number / MANY))
            .map(drop)
    };
    prove(&Way::new("full of empty files", smaller(), step));
}

#[test]
fn inline_files() {
    let step = |place: &Place, number| {
        place.dir(&format!("dir-{}", number / MANY))?;
        place.write(&format!("dir-{}/file-{number}", number / MANY), 0, 1900)
    };
    prove(&Way {
        asks_kernel: true,
        ..Way::new("full of inline files", smaller(), step)
    });
}

#[test]
fn one_big_file() {
    let step = |place: &Place, number| place.write("big", number * MIB, MIB as usize);
    prove(&Way::new("full of one big file", small(), step));
}

#[test]
fn appends_to_many_files() {
    let step = |place: &Place, number| {
        let path = format!("file-{}", number % 40);
        place.grow(&path, 5000)?;
        match number % MANY {
            0 => place.volume.fsync(place.find(&path)?),
            _ => Ok(()),
        }
    };
    prove(&Way::new("full of appended files", small(), step));
}

#[test]
fn snapshots_of_a_changing_tree() {
    let step = |place: &Place, number| {
        for change in 0..8 {
            let file = Rng::new(number * 8 + change).below(200);
            place.write(&format!("live/file-{file}"), change * 3000, 9000)?;
        }
        place.snapshot("live", &format!("snapshot-{number}"))
    };
    prove(&Way {
        begin: |place| place.subvolume("live"),
        asks_kernel: true,
        ..Way::new("full of snapshots", smaller(), step)
    });
}

#[test]
fn reflinks_of_one_file() {
    // Every other sector, so that each has its own extent.
    let begin = |place: &Place| {
        let id = place.file("source")?;
        for number in 0..count(100, 2000) as u64 {
            let offset = number * 8192;
            place.volume.write(id, offset, &noise(number, 4096))?;
        }
        Ok(())
    };
    let step = |place: &Place, number| {
        let (source, id) = (
            place.find("source")?,
            place.file(&format!("clone-{number}"))?,
        );
        place.volume.clone_range(source, 0, 0, id, 0).map(drop)
    };
    prove(&Way {
        begin,
        ..Way::new("full of reflinks", smaller(), step)
    });
}

#[test]
fn attributes() {
    let step = |place: &Place, number| {
        let id = place.file(&format!("file-{}", number / 50))?;
        let name = format!("user.attribute-{}", number % 50);
        let value = noise(number, Rng::new(number).below(3000) as usize);
        place
            .volume
            .set_xattr(id, name.as_bytes(), &value, XattrMode::Any)
    };
    prove(&Way::new("full of attributes", smaller(), step));
}

#[test]
fn long_names_of_few_files() {
    let step = |place: &Place, number| {
        let dir = format!("dir-{}", number / MANY);
        place.dir(&dir)?;
        place.file(&format!("{dir}/file"))?;
        place.link(&format!("{dir}/file"), &format!("{dir}/{number:0>250}"))
    };
    prove(&Way::new("full of long names", smaller(), step));
}

#[test]
fn overwrites_of_a_snapshot() {
    /// Returns the size of the file. Twice that, with the remainders of overwritten extents, exceeds the
    /// volume.
    fn file_bytes() -> u64 {
        count(22, 126) as u64 * MIB
    }
    let begin = |place: &Place| {
        place.subvolume("live")?;
        for at in (0..file_bytes()).step_by(MIB as usize) {
            place.write("live/file", at, MIB as usize)?;
        }
        place.snapshot("live", "before")
    };
    let step = |place: &Place, number| {
        let at = Rng::new(number).below(file_bytes() / 16_384) * 16_384;
        place.write("live/file", at, 16_384)
    };
    prove(&Way {
        begin,
        ..Way::new("full of what replaced a snapshot's", small(), step)
    });
}

/// Overwriting preallocated extents in place needs no space.
#[test]
fn reserved_space_that_is_written() {
    let step = |place: &Place, number| {
        let id = place.file(&format!("file-{number}"))?;
        if number % 2 == 0 {
            place.volume.set_inode_flags(id, InodeFlags::NODATACOW)?;
        }
        place
            .volume
            .fallocate(id, Fallocate::Reserve { keep_size: false }, 0, MIB)?;
        place.volume.write(id, 300_000, &noise(number, 200_000))
    };
    let when_full = |place: &Place| {
        let id = place.find("file-0")?;
        for at in [0, 400_000, 900_000] {
            place.volume.write(id, at, &noise(at, 100_000))?;
            place.volume.fsync(id)?;
        }
        Ok(())
    };
    prove(&Way {
        when_full,
        asks_kernel: true,
        ..Way::new("full of reserved space", small(), step)
    });
}

#[test]
fn compressed() {
    let step = |place: &Place, number| {
        let text = fill::bytes(fill::Kind::Mixed, 400_000, &mut Rng::new(number));
        place
            .volume
            .write(place.file(&format!("file-{number}"))?, 0, &text)
    };
    let algorithm = Compress {
        algorithm: Compression::Zstd,
        ..Compress::default()
    };
    prove(&Way {
        options: quiet().compress(algorithm),
        ..Way::new("full of compressed files", small(), step)
    });
}

#[test]
fn mixed_groups() {
    prove(&Way {
        asks_kernel: true,
        ..Way::new("full mixed groups", mixed(), mix)
    });
}

/// Holes in every other sector make the free-space tree large that is missing at the next open.
#[test]
fn without_a_free_space_tree() {
    let when_full = |place: &Place| {
        let file = place.find("dir-0/file-3")?;
        let size = place.volume.attr(file)?.size;
        let mut holes = (0..size).step_by(8192);
        let punched =
            holes.try_for_each(|at| place.volume.fallocate(file, Fallocate::PunchHole, at, 4096));
        match punched {
            Err(error) if !error.is_no_space() => Err(error),
            _ => Ok(()),
        }
    };
    prove(&Way {
        when_full,
        asks_kernel: true,
        loses_free_space_tree: true,
        ..Way::new(
            "full without a free-space tree",
            mixed().features("^block-group-tree"),
            mix,
        )
    });
}

#[test]
fn metadata_twice() {
    let layout = Layout::new(1, 128 * MIB).profiles(Profile::Single, Profile::Dup);
    prove(&Way::new("full of files of all sizes", layout, mix));
}

#[test]
fn two_devices() {
    let layout = Layout::new(2, 128 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    prove(&Way::new("full mirrors", layout, mix));
}

/// With automatic commits.
#[test]
fn three_threads() {
    const APART: u64 = 1_000_000;
    let step = |place: &Place, number| {
        let some =
            |thread| (0..20).try_for_each(|file| mix(place, thread * APART + number * 20 + file));
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| scope.spawn(move || some(thread)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        // Report ENOSPC only if there is no other error.
        let (full, others): (Vec<_>, Vec<_>) = outcomes
            .into_iter()
            .partition(|outcome| outcome.as_ref().is_err_and(Error::is_no_space));
        others.into_iter().chain(full).collect()
    };
    let often = quiet().commit_interval(Some(Duration::from_millis(20)));
    prove(&Way {
        options: often,
        ..Way::new("full of files of three threads", small(), step)
    });
}

/// Large trees shared with snapshots change in random places, while data uses the last chunks and commits run
/// automatically.
#[test]
fn wide_trees_beside_data() {
    fn files() -> u64 {
        count(2000, 30_000) as u64
    }
    let begin = |place: &Place| {
        place.subvolume("live")?;
        for number in 0..files() {
            place.write(&format!("live/file-{number}"), 0, 600)?;
        }
        // Neighbours in the file are far apart on the device.
        for number in 0..files() {
            place.write("live/scattered", number * 7919 % files() * 4096, 4096)?;
            if number % 50 == 0 {
                place.volume.fsync(place.find("live/scattered")?)?;
            }
        }
        place.snapshot("live", "first")
    };
    let step = |place: &Place, number| {
        let draw = |change| Rng::new(number * 100 + change).below(files());
        let private = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        let changes = || {
            (0..30).try_for_each(|change| {
                let id = place.find(&format!("live/file-{}", draw(change)))?;
                place.volume.set_attr(id, &private)
            })
        };
        let overwrites = || {
            (30..50).try_for_each(|change| place.write("live/scattered", draw(change) * 4096, 9000))
        };
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            let changes = scope.spawn(changes);
            let overwrites = scope.spawn(overwrites);
            let data = scope.spawn(|| place.grow("data", 300_000));
            [changes, overwrites, data]
                .map(|thread| thread.join().unwrap())
                .into()
        });
        let (full, others): (Vec<_>, Vec<_>) = outcomes
            .into_iter()
            .partition(|outcome| outcome.as_ref().is_err_and(Error::is_no_space));
        others.into_iter().chain(full).collect::<Result<()>>()?;
        match number % 10 {
            0 => place.snapshot("live", &format!("snapshot-{number}")),
            _ => Ok(()),
        }
    };
    let options = quiet()
        .commit_interval(Some(Duration::from_millis(20)))
        .delta_bytes(256 << 10);
    let layout = small().nodesize(4096);
    prove(&Way {
        begin,
        options,
        ..Way::new("full beside wide trees", layout, step)
    });
}
