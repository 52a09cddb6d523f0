//! Random changes to files with all kinds of extents, shared with snapshots and clones. The kernel, `btrfs
//! check` and a scrub check each round, and then the kernel continues.

use std::collections::BTreeMap;
use std::fs::OpenOptions as FsOptions;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Compress, Error, Fallocate, FileId, FileKind, OpenOptions, Volume};
use ubtrfs_sim::fill::{Scale, hard_cases};
use ubtrfs_sim::kernel::{self, Feature, KernelMount, KernelVolume, MkfsSpec};
use ubtrfs_sim::{Rng, seed};

/// Larger files are neither changed nor compared.
const MOST_BYTES: u64 = 2 << 20;

fn btrfs(args: &[&str]) {
    let output = Command::new("btrfs").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "btrfs {args:?}: {said}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Fills a volume with hard cases: compressed and uncompressed, nocow, and shared.
fn fill(mount: &KernelMount, seed: u64) {
    let live = mount.path().join("live");
    btrfs(&["subvolume", "create", text(&live)]);
    hard_cases(&live, &Scale::tiny(), seed).unwrap();
    let mut rng = Rng::new(seed);
    for number in 0..40 {
        let path = live.join(format!("plain-{number}"));
        if number % 4 == 0 {
            std::fs::write(&path, b"").unwrap();
            let output = Command::new("chattr").arg("+C").arg(&path).output();
            assert!(output.unwrap().status.success());
        }
        let mut bytes = vec![number as u8; rng.below(300_000) as usize];
        if number % 3 == 0 {
            rng.fill(&mut bytes);
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    mount.sync().unwrap();
    let snapshot = mount.path().join("snap");
    btrfs(&["subvolume", "snapshot", text(&live), text(&snapshot)]);
}

/// The contents of every regular file by path.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

fn of_kernel(mount: &KernelMount) -> Contents {
    let mut contents = Contents::new();
    let mut pending = vec![mount.path().to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() && entry.metadata().unwrap().len() <= MOST_BYTES {
                let path = entry.path();
                let bytes = std::fs::read(&path).unwrap();
                let path = path.strip_prefix(mount.path()).unwrap().to_owned();
                contents.insert(path, bytes);
            }
        }
    }
    contents
}

fn files(volume: &Volume) -> Vec<(PathBuf, FileId)> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mut files = Vec::new();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let mut pending = vec![(PathBuf::new(), top)];
    while let Some((path, dir)) = pending.pop() {
        let mut each = |entry: ubtrfs_fs::DirEntry| {
            let path = path.join(OsStr::from_bytes(&entry.name));
            match entry.kind {
                FileKind::Directory => pending.push((path, entry.id)),
                FileKind::Regular if volume.attr(entry.id).unwrap().size <= MOST_BYTES => {
                    files.push((path, entry.id));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        };
        volume.readdir(dir, 0, &mut each).unwrap();
    }
    files.sort();
    files
}

fn of_volume(volume: &Volume) -> Contents {
    let read = |(path, id): (PathBuf, FileId)| {
        let mut bytes = vec![0; volume.attr(id).unwrap().size as usize];
        volume.read(id, 0, &mut bytes).unwrap();
        (path, bytes)
    };
    files(volume).into_iter().map(read).collect()
}

fn assert_same(found: &Contents, wanted: &Contents) {
    let paths = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(found), paths(wanted));
    for (path, bytes) in wanted {
        let found = &found[path];
        if found != bytes {
            let differs = found.iter().zip(bytes).position(|(a, b)| a != b);
            let lens = (found.len(), bytes.len());
            panic!("{}: {lens:?}, differs at {differs:?}", path.display());
        }
    }
}

/// Makes one random change to one file. `of_volume` reads it under the inode's other names as well.
fn change(volume: &Volume, rng: &mut Rng, files: &[(PathBuf, FileId)]) {
    let no_holes = volume.superblock().incompat().contains(Incompat::NO_HOLES);
    // Without NO_HOLES, the kernel (6.18) loses the end of a write to space preallocated beyond the file's
    // end in an earlier mount.
    let keep_size = no_holes && rng.one_in(2);
    let (path, id) = &files[rng.below(files.len() as u64) as usize];
    let size = volume.attr(*id).unwrap().size;
    if size > MOST_BYTES - 100_000 {
        return;
    }
    let offset = rng.below(size + 20_000);
    let len = 1 + rng.below(40_000);
    let outcome = match rng.below(9) {
        0 => volume.truncate(*id, offset),
        1 => volume.fallocate(*id, Fallocate::PunchHole, offset, len),
        2 => {
            let mode = Fallocate::Reserve { keep_size };
            volume.fallocate(*id, mode, offset, len)
        }
        3 => {
            let mode = Fallocate::ZeroRange { keep_size };
            volume.fallocate(*id, mode, offset, len)
        }
        4 => {
            let (_, from) = &files[rng.below(files.len() as u64) as usize];
            let to = 4096 * rng.below(10);
            // Many pairs are not allowed.
            let _ = volume.clone_range(*from, 0, 0, *id, to);
            Ok(())
        }
        5 => {
            let mut bytes = vec![0; len as usize];
            rng.fill(&mut bytes);
            volume.append(*id, &bytes).map(drop)
        }
        _ => {
            let bytes = vec![rng.below(256) as u8; len as usize];
            volume.write(*id, offset, &bytes)
        }
    };
    match outcome {
        Ok(()) | Err(Error::ReadOnlySubvolume(_)) => {}
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn open(made: &KernelVolume, compress: Compression) -> Arc<Volume> {
    let compress = Compress {
        algorithm: compress,
        ..Compress::default()
    };
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(None)
        .compress(compress);
    Volume::open(made.devices(), &options).unwrap()
}

/// Checks that the kernel reads the same data and that everything is sound. Then the kernel writes, and the
/// engine reads the result.
fn judge(made: &KernelVolume, wanted: &Contents, rng: &mut Rng) {
    made.check().unwrap();
    let mount = made.mount("").unwrap();
    assert_same(&of_kernel(&mount), wanted);
    btrfs(&["scrub", "start", "-B", text(mount.path())]);
    let paths: Vec<&PathBuf> = wanted.keys().collect();
    for _ in 0..60 {
        let path = mount
            .path()
            .join(paths[rng.below(paths.len() as u64) as usize]);
        // Immutable files and read-only snapshots do not change.
        let Ok(file) = FsOptions::new().write(true).open(path) else {
            continue;
        };
        let len = file.metadata().unwrap().len();
        let bytes = vec![rng.below(256) as u8; 1 + rng.below(20_000) as usize];
        file.write_at(&bytes, rng.below(len + 5000)).unwrap();
    }
    mount.sync().unwrap();
    let after = of_kernel(&mount);
    mount.unmount().unwrap();
    made.check().unwrap();
    let volume = Volume::open(made.devices(), &OpenOptions::new()).unwrap();
    assert_same(&of_volume(&volume), &after);
}

#[test]
fn the_kernel_agrees_with_what_becomes_of_its_files() {
    if !kernel::or_skip("changes of the kernel's files") {
        return;
    }
    for (spec, options, compress) in [
        (MkfsSpec::new(), "compress=zstd", Compression::Zstd),
        (
            MkfsSpec::new().nodesize(4096).without(Feature::NoHoles),
            "compress-force=lzo",
            Compression::Lzo,
        ),
        (
            MkfsSpec::new().without(Feature::FreeSpaceTree),
            "",
            Compression::Zlib,
        ),
    ] {
        let seed = seed("changes of the kernel's files");
        let made = KernelVolume::make(&spec).unwrap();
        let mount = made.mount(options).unwrap();
        fill(&mount, seed);
        let before = of_kernel(&mount);
        mount.unmount().unwrap();
        let mut rng = Rng::new(seed);
        for round in 0..2 {
            let volume = open(&made, compress);
            if round == 0 {
                assert_same(&of_volume(&volume), &before);
            }
            let files = files(&volume);
            for step in 0..300 {
                change(&volume, &mut rng, &files);
                if step % 100 == 50 {
                    volume.sync().unwrap();
                }
            }
            let wanted = of_volume(&volume);
            volume.sync().unwrap();
            assert_same(&of_volume(&volume), &wanted);
            drop(volume);
            judge(&made, &wanted, &mut rng);
        }
    }
}
