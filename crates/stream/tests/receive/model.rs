//! Random writes, encoded writes, clones, holes and truncations of three files, compared with a model in memory.
//! There are commits in between.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_device::progress::{Event, Progress};
use ubtrfs_format::compress::{Compression, compress};
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{Compress, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::Rng;
use ubtrfs_stream::{
    Command, ReceiveOptions, Receiver, StreamReader, StreamVersion, StreamWriter, VolumeTarget,
};

use crate::fixture::{MIB, SECTOR, assert_sound, device_with, is_soak, plain};

const FILES: [&[u8]; 3] = [b"a", b"b", b"c"];

/// Makes the volume commit between commands.
struct Commits<'a> {
    volume: &'a Volume,
    rng: Rng,
}

impl Progress for Commits<'_> {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if matches!(event, Event::Command(_)) && self.rng.one_in(8) {
            self.volume.sync().unwrap();
        }
        ControlFlow::Continue(())
    }
}

struct Model {
    stream: StreamWriter<Vec<u8>>,
    files: [Vec<u8>; 3],
    log: Vec<String>,
}

fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset as usize..end].copy_from_slice(data);
}

impl Model {
    fn emit(&mut self, command: &Command<'_>) {
        let mut text = format!("{command:?}");
        text.truncate(200);
        self.log.push(text);
        self.stream.write(command).unwrap();
    }

    fn step(&mut self, rng: &mut Rng, salt: u64, uuid: Uuid) {
        let which = rng.below(3) as usize;
        let path = FILES[which];
        let sectors = if rng.one_in(3) { 4 } else { 64 };
        let offset = rng.below(sectors) * SECTOR;
        let size = self.files[which].len() as u64;
        match rng.below(10) {
            0 | 1 => {
                let most = if rng.one_in(2) { 300 } else { 20_000 };
                let (offset, data) = (
                    offset + rng.below(5000),
                    plain(rng.below(most) as usize + 1, salt),
                );
                self.emit(&Command::Write {
                    path,
                    offset,
                    data: &data,
                });
                put(&mut self.files[which], offset, &data);
            }
            2 => {
                let most = if rng.one_in(3) { 6000 } else { 300_000 };
                let size = rng.below(most);
                self.emit(&Command::Truncate { path, size });
                self.files[which].resize(size as usize, 0);
            }
            3 => self.encode_small(rng, which, salt),
            4 | 5 => self.encode(rng, which, offset, salt),
            6 | 7 => self.clone_from(rng, which, offset, uuid),
            _ => {
                let mode = [0, 1, 3, 3, 16, 17][rng.below(6) as usize];
                let (offset, len) = if rng.one_in(2) {
                    (offset, (1 + rng.below(16)) * SECTOR)
                } else {
                    (offset + rng.below(SECTOR), 1 + rng.below(30_000))
                };
                self.emit(&Command::Fallocate {
                    path,
                    mode,
                    offset,
                    len,
                });
                let file = &mut self.files[which];
                if matches!(mode, 0 | 16) && offset + len > size {
                    file.resize((offset + len) as usize, 0);
                }
                if mode > 1 {
                    let end = (offset + len).min(file.len() as u64);
                    file[offset.min(end) as usize..end as usize].fill(0);
                }
            }
        }
    }

    fn encode_small(&mut self, rng: &mut Rng, which: usize, salt: u64) {
        let plain = plain(1000 + rng.below(1000) as usize, salt);
        self.write_encoded(rng, which, 0, &plain, 0, plain.len() as u64);
    }

    fn encode(&mut self, rng: &mut Rng, which: usize, offset: u64, salt: u64) {
        let sectors = 2 + rng.below(31);
        let from = rng.below(sectors) * SECTOR;
        let mut len = (1 + rng.below(sectors - from / SECTOR)) * SECTOR;
        if rng.one_in(3) {
            len -= rng.below(SECTOR);
        }
        let plain = plain((sectors * SECTOR) as usize, salt);
        self.write_encoded(rng, which, offset, &plain, from, len);
    }

    fn write_encoded(
        &mut self,
        rng: &mut Rng,
        which: usize,
        offset: u64,
        plain: &[u8],
        from: u64,
        len: u64,
    ) {
        let inline = plain.len() as u64 <= SECTOR / 2;
        let (kind, compression) = [
            (Compression::Zlib, 1),
            (Compression::Zstd, 2),
            (Compression::Lzo, 3),
        ][rng.below(3) as usize];
        let mut data = Vec::new();
        assert!(compress(kind, 0, plain, &mut data, SECTOR as usize, inline).unwrap());
        self.emit(&Command::EncodedWrite {
            path: FILES[which],
            offset,
            unencoded_file_len: len,
            unencoded_len: plain.len() as u64,
            unencoded_offset: from,
            compression,
            encryption: None,
            data: &data,
        });
        put(
            &mut self.files[which],
            offset,
            &plain[from as usize..(from + len) as usize],
        );
    }

    fn clone_from(&mut self, rng: &mut Rng, which: usize, offset: u64, uuid: Uuid) {
        let source = rng.below(3) as usize;
        let (src, dst) = (self.files[source].clone(), self.files[which].len() as u64);
        let size = src.len() as u64;
        let from = rng.below(size / SECTOR + 1) * SECTOR;
        let mut len = (1 + rng.below(20)) * SECTOR;
        if from + len > size {
            len = size - from;
            if offset + len < dst {
                len -= len % SECTOR;
            }
        }
        let whole = len.next_multiple_of(SECTOR);
        if len == 0 || source == which && from.abs_diff(offset) < whole {
            return;
        }
        self.emit(&Command::Clone {
            offset,
            len,
            path: FILES[which],
            clone_uuid: uuid,
            clone_ctransid: Transid(3),
            clone_path: FILES[source],
            clone_offset: from,
        });
        let data = &src[from as usize..(from + len) as usize];
        put(&mut self.files[which], offset, data);
    }
}

fn volume_options(rng: &mut Rng) -> MkfsOptions {
    let mut options = MkfsOptions::default();
    if rng.one_in(3) {
        options.features.incompat.remove(Incompat::NO_HOLES);
        let needs_it = CompatRo::BLOCK_GROUP_TREE;
        options.features.compat_ro.remove(needs_it);
    }
    options
}

/// Opens a volume with random options: with compression, without copy-on-write, or without inline extents.
fn open(device: Arc<dyn BlockDevice>, rng: &mut Rng) -> Arc<Volume> {
    let mut options = OpenOptions::new().writable(true).commit_interval(None);
    match rng.below(4) {
        0 => {
            options = options.compress(Compress {
                algorithm: Compression::Zstd,
                level: 3,
                force: false,
            });
        }
        1 => options = options.no_data_cow(true),
        _ => {}
    }
    if rng.one_in(3) {
        options = options.max_inline_bytes(0);
    }
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

fn assert_holds(volume: &Volume, name: &[u8], files: &[Vec<u8>; 3], log: &[String], when: &str) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for (path, wanted) in FILES.iter().zip(files) {
        let file = volume.resolve(top, &[name, b"/", path].concat()).unwrap();
        let mut bytes = vec![0; volume.attr(file).unwrap().size as usize];
        assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), bytes.len());
        let differs = bytes.iter().zip(wanted).position(|(a, b)| a != b);
        assert!(
            bytes == *wanted,
            "{when}: {} of {}: {} bytes, wanted {}, first differs {differs:?}\n{}",
            path.escape_ascii(),
            name.escape_ascii(),
            bytes.len(),
            wanted.len(),
            log.join("\n")
        );
    }
}

/// Receives a subvolume of random commands: the first one in full, later ones as a difference from the previous one.
fn receive_random(
    volume: &Arc<Volume>,
    generation: u8,
    files: &mut [Vec<u8>; 3],
    rng: &mut Rng,
) -> Vec<String> {
    let uuid = Uuid([generation + 1; 16]);
    let name = [b's', b'0' + generation];
    let mut model = Model {
        stream: StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap(),
        files: files.clone(),
        log: Vec::new(),
    };
    let (path, ctransid) = (&name[..], Transid(3));
    match generation {
        0 => {
            model.emit(&Command::Subvol {
                path,
                uuid,
                ctransid,
            });
            for path in FILES {
                let ino = InodeNr(300);
                model.emit(&Command::Mkfile { path, ino });
            }
        }
        _ => {
            model.emit(&Command::Snapshot {
                path,
                uuid,
                ctransid,
                clone_uuid: Uuid([generation; 16]),
                clone_ctransid: ctransid,
            });
            // A file that may be stored differently from the others.
            let (path, ino) = (FILES[2], InodeNr(301));
            model.emit(&Command::Unlink { path });
            model.emit(&Command::Mkfile { path, ino });
            model.files[2].clear();
        }
    }
    for salt in 0..20 {
        model.step(rng, salt + u64::from(generation) * 31, uuid);
    }
    model.emit(&Command::End);
    let stream = model.stream.into_inner();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let mut target = VolumeTarget::new(volume, top);
    let rng = Rng::new(rng.next_u64());
    let mut commits = Commits { volume, rng };
    Receiver::new(&mut target, &mut commits, ReceiveOptions::default())
        .receive(&mut StreamReader::open(&stream[..]).unwrap())
        .unwrap_or_else(|error| panic!("{error}\n{}", model.log.join("\n")));
    *files = model.files;
    model.log
}

#[test]
fn files_hold_what_random_commands_say() {
    let mut rng = Rng::new(ubtrfs_sim::seed("model of files"));
    for round in 0..if is_soak() { 1000 } else { 20 } {
        let device = device_with(&volume_options(&mut rng), 256 * MIB);
        let mut files: [Vec<u8>; 3] = Default::default();
        let mut history = Vec::new();
        for generation in 0..3u8 {
            let volume = open(device.clone(), &mut rng);
            let log = receive_random(&volume, generation, &mut files, &mut rng);
            let name = [b's', b'0' + generation];
            history.push((name, files.clone(), log));
            for (name, files, log) in &history {
                assert_holds(&volume, name, files, log, &format!("round {round}"));
            }
            volume.close().unwrap();
        }
        assert_sound(&device);
        let volume = open(device, &mut rng);
        for (name, files, log) in &history {
            assert_holds(&volume, name, files, log, "opened again");
        }
    }
}
