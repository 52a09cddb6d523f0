//! Compressed data compared with the decompressed equivalent, failing devices, a full volume, and nonsensical
//! commands. With `UBTRFS_SOAK` set there are more of each.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_device::progress::{Event, Progress};
use ubtrfs_format::compress::{Compression, compress};
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{DirEntry, NewInode};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::fault::{Fault, FaultDevice};
use ubtrfs_sim::record::{CrashPlan, Recorder};
use ubtrfs_sim::{Rng, new_volume};
use ubtrfs_stream::{
    Command, ReceiveOptions, Receiver, StreamReader, StreamVersion, StreamWriter, VolumeTarget,
};

use crate::fixture::{
    MIB, SECTOR, SUBVOL, assert_sound, content, device_with, is_finished, is_soak, new_device,
    open, plain, receive,
};

const FAR: u64 = 1 << 62;
const TRUNCATE_FAR: Command<'_> = Command::Truncate {
    path: b"f",
    size: FAR,
};

/// Commands on the file `f`, and its expected contents.
struct Script {
    stream: StreamWriter<Vec<u8>>,
    content: Vec<u8>,
}

impl Script {
    fn new() -> Script {
        let mut stream = StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap();
        let (path, ino) = (&b"f"[..], InodeNr(257));
        for command in [SUBVOL, Command::Mkfile { path, ino }] {
            stream.write(&command).unwrap();
        }
        Script {
            stream,
            content: Vec::new(),
        }
    }

    fn put(&mut self, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[offset as usize..end].copy_from_slice(data);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let path = b"f";
        let command = Command::Write { path, offset, data };
        self.stream.write(&command).unwrap();
        self.put(offset, data);
    }

    fn truncate(&mut self, size: u64) {
        let path = b"f";
        self.stream
            .write(&Command::Truncate { path, size })
            .unwrap();
        self.content.resize(size as usize, 0);
    }

    /// Writes `len` bytes of `plain`, starting at `from`.
    fn write_encoded(&mut self, offset: u64, kind: Compression, plain: &[u8], from: u64, len: u64) {
        let inline = plain.len() as u64 <= SECTOR / 2;
        let mut data = Vec::new();
        assert!(compress(kind, 0, plain, &mut data, SECTOR as usize, inline).unwrap());
        let compression = match kind {
            Compression::None => 0,
            Compression::Zlib => 1,
            Compression::Zstd => 2,
            Compression::Lzo => 3,
        };
        let command = Command::EncodedWrite {
            path: b"f",
            offset,
            unencoded_file_len: len,
            unencoded_len: plain.len() as u64,
            unencoded_offset: from,
            compression,
            encryption: None,
            data: &data,
        };
        self.stream.write(&command).unwrap();
        self.put(offset, &plain[from as usize..(from + len) as usize]);
    }

    fn end(mut self) -> (Vec<u8>, Vec<u8>) {
        self.stream.write(&Command::End).unwrap();
        (self.stream.into_inner(), self.content)
    }
}

fn random_script(rng: &mut Rng) -> Script {
    let mut script = Script::new();
    let kinds = [Compression::Zlib, Compression::Lzo, Compression::Zstd];
    for salt in 0..30 {
        let offset = rng.below(64) * SECTOR;
        match rng.below(8) {
            0 => script.write(
                offset + rng.below(5000),
                &plain(rng.below(9000) as usize + 1, salt),
            ),
            1 => script.truncate(rng.below(300_000)),
            2 => {
                let plain = plain(1000 + rng.below(1000) as usize, salt);
                script.write_encoded(0, kinds[salt as usize % 3], &plain, 0, plain.len() as u64);
            }
            _ => {
                let sectors = 2 + rng.below(31);
                let from = rng.below(sectors) * SECTOR;
                let whole = sectors * SECTOR - from;
                // Some ranges end within a sector.
                let len = whole - rng.below(2) * rng.below(SECTOR);
                let plain = plain((sectors * SECTOR) as usize, salt);
                script.write_encoded(offset, kinds[salt as usize % 3], &plain, from, len);
            }
        }
    }
    script
}

#[test]
fn compressed_data_reads_as_it_does_decompressed() {
    let mut rng = Rng::new(ubtrfs_sim::seed("encoded writes"));
    for _ in 0..if is_soak() { 500 } else { 6 } {
        let (stream, wanted) = random_script(&mut rng).end();
        for force_decompress in [false, true] {
            let device = new_device(256 * MIB);
            let volume = open(device.clone());
            let options = ReceiveOptions {
                force_decompress,
                ..ReceiveOptions::default()
            };
            receive(&volume, &stream, options).unwrap();
            assert!(content(&volume) == wanted, "forced: {force_decompress}");
            volume.sync().unwrap();
            drop(volume);
            assert_sound(&device);
            assert!(content(&open(device)) == wanted, "opened again");
        }
    }
}

/// The sender has smaller sectors, or only one of the files has checksums.
#[test]
fn clones_that_cannot_be_are_copies() {
    let data = plain(20_000, 1);
    let mut script = Script::new();
    let (clone_path, ino) = (&b"g"[..], InodeNr(258));
    let source = [
        Command::Mkfile {
            path: clone_path,
            ino,
        },
        Command::Write {
            path: clone_path,
            offset: 0,
            data: &data,
        },
    ];
    for command in source {
        script.stream.write(&command).unwrap();
    }
    for (offset, clone_offset, len) in [(0, 4096, 8192), (8192, 8192, 11_808)] {
        let clone = Command::Clone {
            offset,
            len,
            path: b"f",
            clone_uuid: Uuid([7; 16]),
            clone_ctransid: Transid(3),
            clone_path,
            clone_offset,
        };
        script.stream.write(&clone).unwrap();
        script.put(
            offset,
            &data[clone_offset as usize..(clone_offset + len) as usize],
        );
    }
    let (stream, wanted) = script.end();
    let options = MkfsOptions {
        sectorsize: 16_384,
        ..MkfsOptions::default()
    };
    let device = device_with(&options, 256 * MIB);
    let volume = open(device.clone());
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    assert!(content(&volume) == wanted);
    volume.close().unwrap();
    assert_sound(&device);
}

/// A hole may be larger than the volume, and data may follow it anywhere.
#[test]
fn long_holes_that_cannot_be_cloned_are_made_again() {
    let mut script = Script::new();
    let (clone_path, ino) = (&b"g"[..], InodeNr(258));
    let (data_at, size) = ((1 << 40) + 4096, (2 << 40) + 100);
    let source = [
        Command::Mkfile {
            path: clone_path,
            ino,
        },
        Command::Write {
            path: clone_path,
            offset: data_at,
            data: &plain(8192, 1),
        },
        Command::Truncate {
            path: clone_path,
            size,
        },
        // This data must read as zeros later.
        Command::Write {
            path: b"f",
            offset: 0,
            data: &plain(100_000, 2),
        },
        Command::Clone {
            offset: 20_000,
            len: size,
            path: b"f",
            clone_uuid: Uuid([7; 16]),
            clone_ctransid: Transid(3),
            clone_path,
            clone_offset: 0,
        },
    ];
    for command in source {
        script.stream.write(&command).unwrap();
    }
    let (stream, _) = script.end();
    let device = new_device(256 * MIB);
    let volume = open(device.clone());
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.resolve(top, b"s/f").unwrap();
    let mut content = vec![1; 100_000];
    volume.read(file, 0, &mut content).unwrap();
    assert!(content[..20_000] == plain(100_000, 2)[..20_000]);
    assert!(content[20_000..].iter().all(|&byte| byte == 0));
    let mut content = vec![0; 8192];
    volume.read(file, 20_000 + data_at, &mut content).unwrap();
    assert!(content == plain(8192, 1));
    assert_eq!(volume.attr(file).unwrap().size, 20_000 + size);
    volume.close().unwrap();
    assert_sound(&device);
}

/// Whichever write of the device fails, a subvolume that is marked as received is complete.
#[test]
fn data_that_is_lost_leaves_the_subvolume_unfinished() {
    let mut script = Script::new();
    for part in 0..8 {
        let offset = part * 400_000;
        script.write(offset, &plain(300_000, part));
        let of_extent = plain(131_072, part);
        let at = (offset + 304_000).next_multiple_of(SECTOR);
        script.write_encoded(at, Compression::Zstd, &of_extent, 0, 65_536);
    }
    let (stream, wanted) = script.end();
    let mut failed = 0;
    for nth in (0..60).step_by(if is_soak() { 1 } else { 6 }) {
        let device = new_device(256 * MIB);
        let faulty = Arc::new(FaultDevice::new(device.clone()));
        let volume = open(faulty.clone());
        let first = faulty.counts().writes + nth;
        (first..first + 30).for_each(|nth| faulty.add(Fault::Write { nth }));
        let received = receive(&volume, &stream, ReceiveOptions::default());
        failed += u32::from(received.is_err());
        faulty.heal();
        let synced = volume.sync().is_ok();
        drop(volume);
        let volume = open(device.clone());
        match received {
            Ok(()) if synced => assert!(content(&volume) == wanted, "write {nth}"),
            _ if is_finished(&volume) => assert!(content(&volume) == wanted, "write {nth}"),
            _ => {}
        }
        drop(volume);
        assert_sound(&device);
    }
    assert!(failed > 0);
}

/// Makes the device lose the next writes, but no later ones.
struct LosesData(Arc<FaultDevice>);

impl Progress for LosesData {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if let Event::Command(command) = event
            && command.name() == "write"
        {
            let next = self.0.counts().writes;
            // Both parts of the data together, or only the first one.
            (next..next + 3).for_each(|nth| self.0.add(Fault::Write { nth }));
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_subvolume_that_is_not_finished_is_the_last() {
    let mut script = Script::new();
    script.write(0, &plain(5000, 1));
    let next = Command::Subvol {
        path: b"t",
        uuid: Uuid([8; 16]),
        ctransid: Transid(3),
    };
    script.stream.write(&next).unwrap();
    let (stream, _) = script.end();
    for (max_errors, follows) in [(1, false), (0, true)] {
        let faulty = Arc::new(FaultDevice::new(new_device(256 * MIB)));
        let volume = open(faulty.clone());
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let options = ReceiveOptions {
            max_errors,
            ..ReceiveOptions::default()
        };
        let mut target = VolumeTarget::new(&volume, top);
        let mut observer = LosesData(faulty);
        let received = Receiver::new(&mut target, &mut observer, options)
            .receive(&mut StreamReader::open(&stream[..]).unwrap());
        let error = received.unwrap_err();
        assert!(!is_finished(&volume));
        let there = volume.lookup(top, b"t").unwrap();
        assert_eq!(there.is_some(), follows, "{error}");
        if !follows {
            assert_eq!(error.unfinished.as_deref(), Some(&b"s"[..]), "{error}");
        }
    }
}

/// On a volume with explicit hole items.
#[test]
fn space_for_a_hole_of_any_length_is_refused_at_once() {
    let mut script = Script::new();
    script.stream.write(&TRUNCATE_FAR).unwrap();
    let (path, len) = (&b"f"[..], FAR);
    for mode in [0, 16] {
        let offset = 0;
        let command = Command::Fallocate {
            path,
            mode,
            offset,
            len,
        };
        script.stream.write(&command).unwrap();
    }
    let (stream, _) = script.end();
    let mut options = MkfsOptions::default();
    options.features.incompat.remove(Incompat::NO_HOLES);
    let needs_it = CompatRo::BLOCK_GROUP_TREE;
    options.features.compat_ro.remove(needs_it);
    let volume = open(device_with(&options, 256 * MIB));
    let passing_over = ReceiveOptions {
        max_errors: 0,
        ..ReceiveOptions::default()
    };
    let error = receive(&volume, &stream, passing_over).unwrap_err();
    assert!(
        error.to_string().starts_with("2 commands failed"),
        "{error}"
    );
}

/// Whenever the power fails, a subvolume that is marked as received is complete.
#[test]
fn a_power_cut_leaves_what_is_marked_as_received_whole() {
    let mut script = Script::new();
    for part in 0..6 {
        let offset = part * 200_000;
        script.write(offset, &plain(100_000, part));
        let of_extent = plain(65_536, part);
        let at = (offset + 104_000).next_multiple_of(SECTOR);
        script.write_encoded(at, Compression::Zstd, &of_extent, 0, 65_536);
    }
    let (stream, wanted) = script.end();
    let recorder = Recorder::new();
    let options = MkfsOptions::default();
    let device = recorder.device(new_volume(&options, 256 * MIB));
    let volume = open(device);
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    recorder.mark(1u64);
    drop(volume);
    let seed = ubtrfs_sim::seed("cuts of a receiver");
    let plan = CrashPlan::new(seed).sector_bytes(4096);
    let plan = plan.random_states(if is_soak() { 1000 } else { 60 });
    let mut finished = 0;
    for state in recorder.recording().crash_states(&plan) {
        let device = Arc::new(state.devices[0].clone());
        let volume = open(device.clone());
        if is_finished(&volume) {
            assert!(content(&volume) == wanted, "{state}")
        } else {
            assert!(state.marks().is_empty(), "{state}")
        }
        finished += u32::from(is_finished(&volume));
        drop(volume);
        assert_sound(&device);
    }
    assert!(finished > 0);
}

#[test]
fn a_volume_that_is_full_keeps_what_there_was() {
    let mut script = Script::new();
    for part in 0..200 {
        script.write(part * MIB, &plain(MIB as usize, part));
    }
    let (stream, _) = script.end();
    let device = new_device(128 * MIB);
    let volume = open(device.clone());
    let error = receive(&volume, &stream, ReceiveOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("write 'f' failed: no space left on device: "),
        "{text}"
    );
    assert_eq!(error.unfinished.as_deref(), Some(&b"s"[..]));
    assert!(!is_finished(&volume));
    volume.sync().unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.delete_subvolume(top, b"s").unwrap();
    volume.sync().unwrap();
    drop(volume);
    assert_sound(&device);
}

/// Making a subvolume writable keeps the record of its origin, as in the kernel.
#[test]
fn a_parent_that_may_have_changed_is_refused() {
    let (stream, _) = Script::new().end();
    let device = new_device(256 * MIB);
    let volume = open(device.clone());
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    let mut writer = StreamWriter::new(Vec::new(), StreamVersion::V1).unwrap();
    let snapshot = Command::Snapshot {
        path: b"t",
        uuid: Uuid([8; 16]),
        ctransid: Transid(9),
        clone_uuid: Uuid([7; 16]),
        clone_ctransid: Transid(3),
    };
    for command in [snapshot, Command::End] {
        writer.write(&command).unwrap();
    }
    let difference = writer.into_inner();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let parent = volume.lookup(top, b"s").unwrap().unwrap();
    volume.set_read_only(parent.root, false).unwrap();
    let error = receive(&volume, &difference, ReceiveOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("is not read-only: it may have changed since"),
        "{text}"
    );
    assert_eq!(volume.lookup(top, b"t").unwrap(), None);
    volume.set_read_only(parent.root, true).unwrap();
    receive(&volume, &difference, ReceiveOptions::default()).unwrap();
    assert!(volume.resolve(top, b"t/f").is_ok());
    volume.sync().unwrap();
    assert_sound(&device);
}

const PATHS: [&[u8]; 14] = [
    b"",
    b"a",
    b"b",
    b"a/b",
    b"a/c",
    b"a/b/c",
    b"l",
    b"l/x",
    b"f",
    b"a/f",
    b"../outside",
    b"/b",
    b"a/",
    b"a/b/d",
];

/// Chooses a command that may be valid after others.
fn random_command<'a>(rng: &mut Rng, data: &'a [u8]) -> Command<'a> {
    let mut path = || PATHS[rng.below(PATHS.len() as u64) as usize];
    let (path, other) = (path(), path());
    let ino = InodeNr(300);
    let far = [0, 4096, 8192, 100, 1 << 20, i64::MAX as u64, u64::MAX];
    let mut number = || far[rng.below(far.len() as u64) as usize];
    let (offset, len) = (number(), number());
    match rng.below(18) {
        0 | 1 => Command::Mkfile { path, ino },
        2 | 3 => Command::Mkdir { path, ino },
        4 => Command::Symlink {
            path,
            ino,
            target: b"../../outside",
        },
        5 | 6 => Command::Rename { path, to: other },
        7 => Command::Link {
            path,
            existing: other,
        },
        8 => Command::Unlink { path },
        9 => Command::Rmdir { path },
        10 => Command::SetXattr {
            path,
            name: b"user.a",
            value: data,
        },
        11 => Command::RemoveXattr {
            path,
            name: b"user.a",
        },
        12 => Command::Write { path, offset, data },
        13 => Command::Clone {
            offset,
            len,
            path,
            clone_uuid: Uuid([7; 16]),
            clone_ctransid: Transid(3),
            clone_path: other,
            clone_offset: 0,
        },
        14 => Command::Truncate {
            path,
            size: offset.min(len),
        },
        15 => Command::Chmod {
            path,
            mode: offset & 0o7777,
        },
        16 => Command::Fallocate {
            path,
            mode: rng.below(4) as u32,
            offset,
            len: len.min(MIB),
        },
        _ => Command::EncodedWrite {
            path,
            offset,
            unencoded_file_len: len,
            unencoded_len: 8192,
            unencoded_offset: 0,
            compression: rng.below(5) as u32,
            encryption: None,
            data,
        },
    }
}

/// Most of them fail. Nothing outside of the subvolume changes, and the volume stays consistent.
#[test]
fn random_commands_do_no_harm() {
    let mut rng = Rng::new(ubtrfs_sim::seed("random commands"));
    for _ in 0..if is_soak() { 500 } else { 5 } {
        let device = new_device(256 * MIB);
        let volume = open(device.clone());
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let outside = volume
            .create(top, b"outside", &NewInode::file(0o600))
            .unwrap();
        volume.write(outside, 0, b"kept").unwrap();
        let mut data = vec![0; 3000];
        rng.fill(&mut data);
        let mut stream = StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap();
        stream.write(&SUBVOL).unwrap();
        for _ in 0..400 {
            let len = rng.below(data.len() as u64) as usize;
            stream
                .write(&random_command(&mut rng, &data[..len]))
                .unwrap();
        }
        stream.write(&Command::End).unwrap();
        let options = ReceiveOptions {
            max_errors: 0,
            ..ReceiveOptions::default()
        };
        let error = receive(&volume, &stream.into_inner(), options).unwrap_err();
        assert!(error.to_string().contains(" commands failed"), "{error}");
        let mut bytes = [0; 8];
        assert_eq!(volume.read(outside, 0, &mut bytes).unwrap(), 4);
        assert_eq!(&bytes[..4], b"kept");
        let mut names = Vec::new();
        let list = &mut |entry: DirEntry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        };
        volume.readdir(top, 0, list).unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
        volume.sync().unwrap();
        drop(volume);
        assert_sound(&device);
    }
}
