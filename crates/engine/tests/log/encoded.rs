//! Files with data that came compressed, among writes, clones, holes and syncs.
//!
//! A power cut right behind the sync of a file leaves all of it.

use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_engine::{EncodedData, Fallocate, FileId, NewInode, OpenOptions, Volume};
use ubtrfs_format::compress::{Compression, compress};
use ubtrfs_format::ids::RootId;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::Rng;
use ubtrfs_sim::record::{RecordDevice, Recorder};

use crate::cut::{made_on, named};

const SECTOR: u64 = 4096;
const NAMES: [&str; 3] = ["a", "b", "c"];
const KINDS: [Compression; 3] = [Compression::Zlib, Compression::Zstd, Compression::Lzo];

/// Compressible, and nowhere the same.
fn plain(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at / 64 + salt) % 251) as u8)
        .collect()
}

struct World {
    device: Arc<RecordDevice>,
    volume: Arc<Volume>,
    ids: [FileId; 3],
    files: [Vec<u8>; 3],
    synced: [Option<Vec<u8>>; 3],
    log: Vec<String>,
}

fn open(device: Arc<dyn BlockDevice>) -> Arc<Volume> {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(None)
        .cache_bytes(4 << 20)
        .fsync_log(true);
    Volume::from_devices(named(vec![device]), &options).unwrap()
}

fn content(volume: &Volume, id: FileId) -> Vec<u8> {
    let mut bytes = vec![0; volume.attr(id).unwrap().size as usize];
    assert_eq!(volume.read(id, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset as usize..end].copy_from_slice(data);
}

impl World {
    fn new() -> World {
        let device = Recorder::new().device(made_on(1, &MkfsOptions::default()).remove(0));
        let volume = open(device.clone());
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let ids = NAMES.map(|name| {
            volume
                .create(top, name.as_bytes(), &NewInode::file(0o600))
                .unwrap()
        });
        volume.sync().unwrap();
        World {
            device,
            volume,
            ids,
            files: Default::default(),
            synced: Default::default(),
            log: Vec::new(),
        }
    }

    fn step(&mut self, rng: &mut Rng, salt: u64) {
        let which = rng.below(3) as usize;
        let id = self.ids[which];
        let sectors = if rng.one_in(3) { 4 } else { 64 };
        let offset = rng.below(sectors) * SECTOR;
        let size = self.files[which].len() as u64;
        match rng.below(14) {
            0 | 1 => {
                let most = if rng.one_in(2) { 300 } else { 20_000 };
                let (offset, data) = (
                    offset + rng.below(5000),
                    plain(rng.below(most) as usize + 1, salt),
                );
                self.log
                    .push(format!("write {which} {offset} {}", data.len()));
                self.volume.write(id, offset, &data).unwrap();
                put(&mut self.files[which], offset, &data);
            }
            2 => {
                let most = if rng.one_in(3) { 6000 } else { 300_000 };
                let size = rng.below(most);
                self.log.push(format!("truncate {which} {size}"));
                self.volume.truncate(id, size).unwrap();
                self.files[which].resize(size as usize, 0);
            }
            3 => {
                let plain = plain(1000 + rng.below(1000) as usize, salt);
                self.write_encoded(rng, which, 0, &plain, 0..plain.len() as u64);
            }
            4..7 => {
                let sectors = 2 + rng.below(31);
                let from = rng.below(sectors) * SECTOR;
                let mut len = (1 + rng.below(sectors - from / SECTOR)) * SECTOR;
                if rng.one_in(3) {
                    len -= rng.below(SECTOR);
                }
                let plain = plain((sectors * SECTOR) as usize, salt);
                self.write_encoded(rng, which, offset, &plain, from..from + len);
            }
            7 | 8 => self.clone_from(rng, which, offset),
            9 => {
                let (mode, zeroes, keeps) = [
                    (Fallocate::Reserve { keep_size: false }, false, false),
                    (Fallocate::Reserve { keep_size: true }, false, true),
                    (Fallocate::PunchHole, true, true),
                    (Fallocate::ZeroRange { keep_size: false }, true, false),
                    (Fallocate::ZeroRange { keep_size: true }, true, true),
                ][rng.below(5) as usize];
                let (offset, len) = match rng.one_in(2) {
                    true => (offset, (1 + rng.below(16)) * SECTOR),
                    false => (offset + rng.below(SECTOR), 1 + rng.below(30_000)),
                };
                self.log.push(format!("{mode:?} {which} {offset} {len}"));
                self.volume.fallocate(id, mode, offset, len).unwrap();
                let file = &mut self.files[which];
                if !keeps && offset + len > size {
                    file.resize((offset + len) as usize, 0);
                }
                if zeroes {
                    let end = (offset + len).min(file.len() as u64);
                    file[offset.min(end) as usize..end as usize].fill(0);
                }
            }
            10 => {
                self.log.push("commit".into());
                self.volume.sync().unwrap();
                self.synced = self.files.clone().map(Some);
            }
            11 => {
                self.log.push(format!("read {which}"));
                assert!(
                    content(&self.volume, id) == self.files[which],
                    "{}",
                    self.log.join("\n")
                );
            }
            _ => {
                self.log.push(format!("fsync {which}"));
                self.volume.fsync(id).unwrap();
                self.synced[which] = Some(self.files[which].clone());
                self.cut(which);
            }
        }
        assert!(
            content(&self.volume, id) == self.files[which],
            "{}",
            self.log.join("\n")
        );
    }

    /// What is there after a cut right behind the sync of a file.
    fn cut(&self, which: usize) {
        let volume = open(Arc::new(self.device.snapshot()));
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let id = volume.resolve(top, NAMES[which].as_bytes()).unwrap();
        let found = content(&volume, id);
        let wanted = &self.files[which];
        let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
        assert!(
            found == *wanted,
            "after the cut: {} bytes, wanted {}, differs at {differs:?}\n{}",
            found.len(),
            wanted.len(),
            self.log.join("\n")
        );
        volume.close().unwrap();
    }

    fn write_encoded(
        &mut self,
        rng: &mut Rng,
        which: usize,
        offset: u64,
        plain: &[u8],
        part: std::ops::Range<u64>,
    ) {
        let inline = plain.len() as u64 <= SECTOR / 2;
        let compression = KINDS[rng.below(3) as usize];
        let mut bytes = Vec::new();
        assert!(compress(compression, 0, plain, &mut bytes, SECTOR as usize, inline).unwrap());
        let data = EncodedData {
            compression,
            bytes: &bytes,
            ram_bytes: plain.len() as u64,
            part: part.clone(),
        };
        let id = self.ids[which];
        let stored = self.volume.write_encoded(id, offset, &data).unwrap();
        self.log.push(format!(
            "encoded {which} {offset} {part:?} of {} bytes {}: {stored}",
            plain.len(),
            bytes.len()
        ));
        let part = &plain[part.start as usize..part.end as usize];
        if !stored {
            self.volume.write(id, offset, part).unwrap();
        }
        put(&mut self.files[which], offset, part);
    }

    fn clone_from(&mut self, rng: &mut Rng, which: usize, offset: u64) {
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
        self.log
            .push(format!("clone {source} {from} {len} to {which} {offset}"));
        self.volume
            .clone_range(self.ids[source], from, len, self.ids[which], offset)
            .unwrap();
        put(
            &mut self.files[which],
            offset,
            &src[from as usize..(from + len) as usize],
        );
    }
}

#[test]
fn data_that_came_compressed_stays() {
    let mut rng = Rng::new(ubtrfs_sim::seed("encoded data"));
    let rounds = if std::env::var_os("UBTRFS_SOAK").is_some() {
        1000
    } else {
        10
    };
    for _ in 0..rounds {
        let mut world = World::new();
        for salt in 0..60 {
            world.step(&mut rng, salt);
        }
    }
}
