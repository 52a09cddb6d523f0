//! Streams into mounts of the kernel: side effects of system calls, and operations that the kernel refuses.
//!
//! Received data is durable.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;

use ubtrfs_format::compress::{Compression, compress};
use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, progs_verdict};
use ubtrfs_stream::Command;

use crate::hostile::{UUID, mkdir, mkfile, stream, subvol, write};
use crate::source::{OURS, ready, run, shell};

/// The capability cap_net_raw, permitted and effective.
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// An ACL with an entry for user 8.
const DEFAULT_ACL: [u8; 44] = [
    2, 0, 0, 0, // version
    1, 0, 7, 0, 255, 255, 255, 255, // owner
    2, 0, 7, 0, 8, 0, 0, 0, // user 8
    4, 0, 5, 0, 255, 255, 255, 255, // group
    16, 0, 7, 0, 255, 255, 255, 255, // mask
    32, 0, 5, 0, 255, 255, 255, 255, // others
];

fn receive(dir: &Path, commands: &[Command<'_>]) -> Output {
    let scratch = Scratch::new().unwrap();
    let file = scratch.path().join("stream");
    fs::write(&file, stream(commands)).unwrap();
    let args: [&OsStr; 4] = [
        "receive".as_ref(),
        "-f".as_ref(),
        file.as_os_str(),
        dir.as_os_str(),
    ];
    run(OURS, &args)
}

#[track_caller]
fn succeed(dir: &Path, commands: &[Command<'_>]) {
    let output = receive(dir, &[commands, &[Command::End]].concat());
    assert!(output.status.success(), "{output:?}");
}

fn chown(path: &[u8], uid: u64) -> Command<'_> {
    Command::Chown { path, uid, gid: 6 }
}

fn chmod(path: &[u8], mode: u64) -> Command<'_> {
    Command::Chmod { path, mode }
}

fn set_xattr<'a>(path: &'a [u8], name: &'a [u8], value: &'a [u8]) -> Command<'a> {
    Command::SetXattr { path, name, value }
}

/// Creates a character device whose number has no driver.
fn device(path: &[u8]) -> Command<'_> {
    Command::Mknod {
        path,
        ino: InodeNr(9),
        rdev: 240 << 8 | 77,
        mode: 0o020_000,
    }
}

/// A stream contains only the differences: if only the owner differs, only the owner changes.
#[test]
fn another_owner_takes_nothing_away() {
    if !ready("owners in mounts of the kernel") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let capability: &[u8] = b"security.capability";
    let made = [
        subvol(b"s"),
        mkfile(b"f"),
        set_xattr(b"f", capability, &CAPABILITY),
        chown(b"f", 5),
        chmod(b"f", 0o6755),
    ];
    let snapshot = Command::Snapshot {
        path: b"t",
        uuid: Uuid([8; 16]),
        ctransid: Transid(4),
        clone_uuid: UUID,
        clone_ctransid: Transid(3),
    };
    succeed(mount.path(), &made);
    succeed(mount.path(), &[snapshot, chown(b"f", 7)]);
    for (file, facts) in [("s/f", "5:6 6755"), ("t/f", "7:6 6755")] {
        let script = format!(
            "[ \"$(stat -c '%u:%g %a' {file})\" = '{facts}' ]; getcap {file} | grep -q cap_net_raw"
        );
        shell(mount.path(), &script);
    }
    mount.unmount().unwrap();
}

/// The sender's files need not have the attributes that directories pass on to new files.
#[test]
fn files_do_not_take_over_what_directories_hand_on() {
    if !ready("default ACLs in mounts of the kernel") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let acl: &[u8] = b"system.posix_acl_default";
    let commands = [
        subvol(b"s"),
        mkdir(b"d"),
        mkfile(b"d/before"),
        set_xattr(b"d", acl, &DEFAULT_ACL),
        set_xattr(b"d", b"btrfs.compression", b"zlib"),
        mkfile(b"d/f"),
        mkdir(b"d/d"),
        Command::Symlink {
            path: b"d/l",
            ino: InodeNr(9),
            target: b"f",
        },
        Command::Mkfifo {
            path: b"d/p",
            ino: InodeNr(9),
            rdev: 0,
            mode: 0,
        },
        Command::Mksock {
            path: b"d/s",
            ino: InodeNr(9),
            rdev: 0,
            mode: 0,
        },
        device(b"d/c"),
        Command::RemoveXattr {
            path: b"d",
            name: acl,
        },
        mkfile(b"d/g"),
    ];
    succeed(mount.path(), &commands);
    for name in ["before", "f", "d", "l", "p", "s", "c", "g"] {
        let script = format!("getfattr -h -m - -d d/{name} 2>&1 | (! grep -E 'acl|compression')");
        shell(&mount.path().join("s"), &script);
    }
    mount.unmount().unwrap();
}

/// If a subvolume is marked as received, its data is durable.
#[test]
fn received_subvolumes_are_durable() {
    if !ready("durable in mounts of the kernel") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("commit=300").unwrap();
    let data = [5; 40_000];
    succeed(
        mount.path(),
        &[subvol(b"s"), mkfile(b"f"), write(b"f", 0, &data)],
    );
    let scratch = Scratch::new().unwrap();
    let copy = scratch.path().join("after the cut");
    fs::copy(&volume.devices()[0], &copy).unwrap();
    mount.unmount().unwrap();
    let mut at = copy.into_os_string();
    at.push(":/s/f");
    let found = run(OURS, &["cat".as_ref(), &at]);
    assert!(found.stdout == data, "{} bytes", found.stdout.len());
}

/// Extents that no kernel creates are written decompressed: the kernel accepts some of them, and crashes on
/// others.
#[test]
fn odd_extents_are_not_for_the_kernel() {
    if !ready("odd extents") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let plain: Vec<u8> = (0..16_384u32).map(|at| (at / 64) as u8).collect();
    let mut packed = Vec::new();
    assert!(compress(Compression::Zlib, 0, &plain, &mut packed, 4096, false).unwrap());
    let mut short = Vec::new();
    assert!(
        compress(
            Compression::Zlib,
            0,
            &plain[..9000],
            &mut short,
            4096,
            false
        )
        .unwrap()
    );
    let part = |offset, from: u64, len: u64, plain_len: u64, data| Command::EncodedWrite {
        path: b"f",
        offset,
        unencoded_file_len: len,
        unencoded_len: plain_len,
        unencoded_offset: from,
        compression: 1,
        encryption: None,
        data,
    };
    let commands = [
        subvol(b"s"),
        mkfile(b"f"),
        part(0, 100, 5000, 16_384, &packed),
        part(8192, 0, 9000, 9000, &short),
        part(20_480, 4096, 100, 16_384, &packed),
        part(24_576, 0, 16_384, 16_384, &packed),
    ];
    succeed(mount.path(), &commands);
    let mut wanted = vec![0; 40_960];
    wanted[..5000].copy_from_slice(&plain[100..5100]);
    wanted[8192..17_192].copy_from_slice(&plain[..9000]);
    wanted[20_480..20_580].copy_from_slice(&plain[4096..4196]);
    wanted[24_576..].copy_from_slice(&plain);
    let found = fs::read(mount.path().join("s/f")).unwrap();
    assert!(found == wanted);
    mount.unmount().unwrap();
    let dump: [&OsStr; 3] = [
        "inspect-internal".as_ref(),
        "dump-tree".as_ref(),
        volume.devices()[0].as_os_str(),
    ];
    let dump = String::from_utf8(run(OURS, &dump).stdout).unwrap();
    assert_eq!(dump.matches("compression 1 ").count(), 1, "{dump}");
    assert_eq!(progs_verdict(volume.devices(), true), Ok(()));
}

/// Users, who may not search trees, find parents and clone sources among the subvolumes that they can reach.
#[test]
fn users_receive_differences() {
    if !ready("users in mounts of the kernel") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let scratch = Scratch::new().unwrap();
    let dir = scratch.path();
    // A directory that users can read.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(OURS, dir.join("ubtrfs")).unwrap();
    let data = [3; 8192];
    let snapshot = Command::Snapshot {
        path: b"t",
        uuid: Uuid([8; 16]),
        ctransid: Transid(4),
        clone_uuid: UUID,
        clone_ctransid: Transid(3),
    };
    let clone = Command::Clone {
        offset: 0,
        len: 8192,
        path: b"g",
        clone_uuid: UUID,
        clone_ctransid: Transid(3),
        clone_path: b"f",
        clone_offset: 0,
    };
    let (end, mnt) = (Command::End, mount.path().display());
    // Writing data as a user other than root clears the set-id bits. The stream does not set them again.
    let chmod = Command::Chmod {
        path: b"f",
        mode: 0o4755,
    };
    let truncate = Command::Truncate {
        path: b"f",
        size: 5,
    };
    let whole = stream(&[
        subvol(b"s"),
        mkfile(b"f"),
        write(b"f", 0, &data),
        chmod,
        end,
    ]);
    let changes = [write(b"f", 0, b"new"), truncate];
    let difference = [snapshot, mkfile(b"g"), clone, changes[0], changes[1], end];
    let difference = stream(&difference);
    fs::write(dir.join("whole"), whole).unwrap();
    fs::write(dir.join("difference"), difference).unwrap();
    let script = format!(
        "mkdir {mnt}/open; chown nobody {mnt}/open; for stream in whole difference; do \
         setpriv --reuid=nobody --regid=nogroup --clear-groups ./ubtrfs receive -f $stream {mnt}/open; done"
    );
    shell(dir, &script);
    assert!(fs::read(mount.path().join("open/t/g")).unwrap() == data);
    for (path, len) in [("open/s/f", 8192), ("open/t/f", 5)] {
        let found = fs::metadata(mount.path().join(path)).unwrap();
        assert_eq!(
            (found.mode() & 0o7777, found.len()),
            (0o4755, len),
            "{path}"
        );
    }
    mount.unmount().unwrap();
}

/// Opening a device may have effects. If this one were opened, the error would be that it does not exist.
#[test]
fn devices_are_not_opened() {
    if !ready("devices in mounts of the kernel") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let device = device(b"n");
    let output = receive(mount.path(), &[subvol(b"s"), device, write(b"n", 0, b"x")]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("write 'n' failed: Invalid argument"),
        "{stderr}"
    );
    mount.unmount().unwrap();
}

/// Data is copied where it cannot be shared.
#[test]
fn clones_that_cannot_be_are_copies() {
    if !ready("refused clones") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let data: Vec<u8> = (0..20_000u32).map(|at| (at / 7) as u8).collect();
    // Larger than the volume.
    let size = (1 << 40) + 8192;
    let hole = Command::Truncate { path: b"h", size };
    let source = [
        subvol(b"s"),
        mkfile(b"f"),
        write(b"f", 0, &data),
        mkfile(b"h"),
        hole,
        write(b"h", 1 << 40, &data[..8192]),
    ];
    succeed(mount.path(), &source);
    mount.unmount().unwrap();
    let mount = volume.mount("nodatasum").unwrap();
    let clone = |clone_offset, len| Command::Clone {
        offset: 0,
        len,
        path: b"g",
        clone_uuid: UUID,
        clone_ctransid: Transid(3),
        clone_path: b"f",
        clone_offset,
    };
    let begin = Command::Subvol {
        path: b"t",
        uuid: Uuid([8; 16]),
        ctransid: Transid(3),
    };
    succeed(mount.path(), &[begin, mkfile(b"g"), clone(4096, 15_904)]);
    assert!(fs::read(mount.path().join("t/g")).unwrap() == data[4096..]);
    let begin = Command::Subvol {
        path: b"u",
        uuid: Uuid([9; 16]),
        ctransid: Transid(3),
    };
    let long = Command::Clone {
        offset: 0,
        len: size,
        path: b"h",
        clone_uuid: UUID,
        clone_ctransid: Transid(3),
        clone_path: b"h",
        clone_offset: 0,
    };
    let commands = [begin, mkfile(b"h"), write(b"h", 4096, &data), long];
    succeed(mount.path(), &commands);
    let copied = fs::File::open(mount.path().join("u/h")).unwrap();
    assert_eq!(copied.metadata().unwrap().len(), size);
    let mut part = vec![1; 40_000];
    copied.read_exact_at(&mut part, 0).unwrap();
    assert!(part.iter().all(|&byte| byte == 0));
    copied.read_exact_at(&mut part[..8192], 1 << 40).unwrap();
    assert!(part[..8192] == data[..8192]);
    drop(copied);
    let begin = Command::Subvol {
        path: b"v",
        uuid: Uuid([10; 16]),
        ctransid: Transid(3),
    };
    let behind = [begin, mkfile(b"g"), clone(4096, 16_384), Command::End];
    let output = receive(mount.path(), &behind);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("clone 'g' failed"), "{stderr}");
    mount.unmount().unwrap();
}

/// The number of subvolumes and directories that clones come from does not matter.
#[test]
fn few_descriptors_are_enough() {
    if !ready("descriptors of a receiver") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let names: Vec<Vec<u8>> = (0..18).map(|dir| format!("d{dir}").into_bytes()).collect();
    let files: Vec<Vec<u8>> = names.iter().map(|dir| [dir, &b"/f"[..]].concat()).collect();
    let data = [1; 8192];
    let begin = |number: u8| Command::Subvol {
        path: match number {
            99 => b"last",
            _ => &files[usize::from(number)][..1],
        },
        uuid: Uuid([number + 1; 16]),
        ctransid: Transid(3),
    };
    for number in 0..17 {
        let dir = mount.path().join(number.to_string());
        fs::create_dir(&dir).unwrap();
        let mut commands = vec![begin(number)];
        for (dir, file) in names.iter().zip(&files) {
            commands.extend([mkdir(dir), mkfile(file), write(file, 0, &data)]);
        }
        succeed(&dir, &commands);
    }
    let mut commands = vec![begin(99), mkfile(b"f")];
    for number in 0..17 {
        commands.extend(files.iter().map(|file| Command::Clone {
            offset: 0,
            len: 8192,
            path: b"f",
            clone_uuid: Uuid([number + 1; 16]),
            clone_ctransid: Transid(3),
            clone_path: file,
            clone_offset: 0,
        }));
    }
    commands.push(Command::End);
    let file = volume.dir().join("stream");
    fs::write(&file, stream(&commands)).unwrap();
    let script = format!(
        "ulimit -n 300; {OURS} receive -f {} {}",
        file.display(),
        mount.path().display()
    );
    shell(volume.dir(), &script);
    mount.unmount().unwrap();
}
