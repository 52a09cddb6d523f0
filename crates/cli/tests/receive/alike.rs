//! Random commands received into an image and into a mount of the kernel. The same commands fail, and the
//! resulting files are the same.
//!
//! Not here: links, whose modes can be set in an image but not by a stream.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_sim::Rng;
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec, progs_verdict};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};
use ubtrfs_stream::Command;

use crate::hostile::{UUID, stream, subvol};
use crate::source::{OURS, empty_image, ready, run};

const PATHS: [&[u8]; 12] = [
    b"", b"a", b"b", b"c", b"a/b", b"a/c", b"a/b/c", b"a/b/d", b"b/a", b"l", b"l/x", b"c/e",
];
/// All kinds of files can have these.
const XATTRS: [&[u8]; 3] = [b"trusted.a", b"trusted.b", b"trusted.c"];

/// The stream sets no times.
const TIMES: [Field; 4] = [Field::Atime, Field::Mtime, Field::Ctime, Field::Btime];

fn random_command<'a>(rng: &mut Rng, data: &'a [u8]) -> Command<'a> {
    let (path, other) = (pick(rng, &PATHS), pick(rng, &PATHS));
    let offset = pick(rng, &[0, 4096, 8192, 100, 20_000]);
    let len = pick(rng, &[4096, 8192, 100, 5000]);
    let (ino, name) = (InodeNr(300), pick(rng, &XATTRS));
    let data = &data[..rng.below(data.len() as u64) as usize];
    match rng.below(24) {
        0..3 => Command::Mkfile { path, ino },
        3..6 => Command::Mkdir { path, ino },
        6 | 7 => Command::Mkfifo {
            path,
            ino,
            rdev: 0,
            mode: 0,
        },
        8..11 => Command::Rename { path, to: other },
        11 => Command::Link {
            path,
            existing: other,
        },
        12 => Command::Unlink { path },
        13 => Command::Rmdir { path },
        14 => Command::SetXattr {
            path,
            name,
            value: data,
        },
        15 => Command::RemoveXattr { path, name },
        16 => Command::Chmod {
            path,
            mode: pick(rng, &[0o600, 0o4755, 0o2750, 0o1777]),
        },
        17 => Command::Chown {
            path,
            uid: rng.below(9),
            gid: rng.below(9),
        },
        18 => Command::Truncate {
            path,
            size: offset + len,
        },
        19 => Command::Clone {
            offset,
            len,
            path,
            clone_uuid: UUID,
            clone_ctransid: Transid(3),
            clone_path: other,
            clone_offset: pick(rng, &[0, 4096]),
        },
        20 => Command::Fallocate {
            path,
            mode: pick(rng, &[0, 1, 3, 16, 17]),
            offset,
            len,
        },
        _ => Command::Write { path, offset, data },
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// Receives and continues after errors. Returns the commands that failed, each with its error message.
fn failed(file: &Path, destination: &OsStr) -> BTreeMap<String, String> {
    let args: [&OsStr; 4] = [
        "receive".as_ref(),
        "-E0".as_ref(),
        "-f".as_ref(),
        file.as_os_str(),
    ];
    let output = run(OURS, &[&args[..], &[destination]].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    let command = |line: &str| {
        let (text, at) = line.rsplit_once(" (command ")?;
        Some((at.to_owned(), text.to_owned()))
    };
    stderr.lines().filter_map(command).collect()
}

#[test]
fn images_and_mounts_of_the_kernel_take_the_same() {
    let test = "random commands";
    if !ready(test) {
        return;
    }
    let mut rng = Rng::new(ubtrfs_sim::seed(test));
    let mut data = vec![0; 3000];
    rng.fill(&mut data);
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let image = volume.dir().join("ours");
    empty_image(&image);
    let rounds = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 300,
        None => 12,
    };
    let names: Vec<Vec<u8>> = (0..rounds)
        .map(|at| format!("s{at}").into_bytes())
        .collect();
    for name in &names {
        let mut commands = vec![subvol(name)];
        commands.extend((0..250).map(|_| random_command(&mut rng, &data)));
        commands.push(Command::End);
        let file = volume.dir().join("stream");
        fs::write(&file, stream(&commands)).unwrap();
        let mount = volume.mount("").unwrap();
        let wanted = failed(&file, mount.path().as_os_str());
        mount.unmount().unwrap();
        assert!(wanted.len() > 20, "{wanted:?}");
        let found = failed(&file, image.as_os_str());
        let what = String::from_utf8_lossy(name);
        // The two sides describe the reason differently.
        for (one, other) in [(&wanted, &found), (&found, &wanted)] {
            let alone = one.iter().find(|(at, _)| !other.contains_key(*at));
            assert_eq!(alone, None, "{what}");
        }
    }
    let mount = volume.mount_ro().unwrap();
    let ours = KernelMount::new(std::slice::from_ref(&image), "ro").unwrap();
    for name in &names {
        let name = String::from_utf8_lossy(name).into_owned();
        let [wanted, found] = [mount.path(), ours.path()]
            .map(|top| Manifest::of_dir(&top.join(&name)).unwrap().canonical());
        assert_same(&name, &wanted, &found, &TIMES);
    }
    mount.unmount().unwrap();
    ours.unmount().unwrap();
    assert_eq!(progs_verdict(&[image], true), Ok(()));
}
