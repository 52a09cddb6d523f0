//! Files with already compressed data, mixed with writes, clones, holes and syncs.
//!
//! A power cut right after the sync of a file loses none of it.

use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::compress::{Compression, compress};
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Compress, EncodedData, Error, Fallocate, FileId, NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::record::{RecordDevice, Recorder};
use ubtrfs_sim::{Rng, new_volume};

use crate::cut::named;

const SECTOR: u64 = 4096;
const MIB: u64 = 1 << 20;
const NAMES: [&str; 3] = ["a", "b", "c"];
const KINDS: [Compression; 3] = [Compression::Zlib, Compression::Zstd, Compression::Lzo];

/// Returns compressible bytes without repetition.
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
    log: Vec<String>,
}

fn options() -> OpenOptions {
    OpenOptions::new()
        .writable(true)
        .commit_interval(None)
        .cache_bytes(4 << 20)
        .fsync_log(true)
}

fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Arc<Volume> {
    Volume::from_devices(named(vec![device]), options).unwrap()
}

fn random_options(rng: &mut Rng) -> (MkfsOptions, OpenOptions) {
    let (mut made, mut opened) = (MkfsOptions::default(), options());
    if rng.one_in(2) {
        made.features.incompat.remove(Incompat::NO_HOLES);
        let needs_it = CompatRo::BLOCK_GROUP_TREE;
        made.features.compat_ro.remove(needs_it);
    }
    if rng.one_in(2) {
        opened = opened.compress(Compress {
            algorithm: Compression::Zstd,
            level: 1,
            force: rng.one_in(2),
        });
    }
    if rng.one_in(2) {
        opened = opened.max_inline_bytes(0);
    }
    if rng.one_in(2) {
        opened = opened.buffer_bytes(MIB);
    }
    if rng.one_in(2) {
        opened = opened.delta_bytes(MIB / 4);
    }
    (made, opened)
}

/// Fills a volume, except for holes of a few sectors and perhaps some space at the end.
fn fill(volume: &Volume, rng: &mut Rng) {
    const PIECE: u64 = 64 << 10;
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = NewInode::file(0o600);
    let filler = volume.create(top, b"filler", &new).unwrap();
    let mut noise = vec![0; PIECE as usize];
    rng.fill(&mut noise);
    let mut end = 0;
    while volume.write(filler, end, &noise).is_ok() {
        end += PIECE;
    }
    volume.sync().unwrap();
    for piece in (0..end / PIECE).step_by(16) {
        let len = SECTOR * (1 + piece % 5);
        volume
            .fallocate(filler, Fallocate::PunchHole, piece * PIECE, len)
            .unwrap();
    }
    volume.truncate(filler, end - rng.below(4) * MIB).unwrap();
    volume.sync().unwrap();
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
    fn new(rng: &mut Rng) -> World {
        let (made, opened) = random_options(rng);
        let is_full = rng.one_in(2);
        let device_bytes = if is_full { 128 * MIB } else { 1 << 30 };
        let device = Recorder::new().device(new_volume(&made, device_bytes));
        let volume = open(device.clone(), &opened);
        if is_full {
            fill(&volume, rng);
        }
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
            log: Vec::new(),
        }
    }

    fn step(&mut self, rng: &mut Rng, salt: u64) {
        let which = rng.below(3) as usize;
        let id = self.ids[which];
        let sectors = if rng.one_in(3) { 4 } else { 64 };
        let offset = rng.below(sectors) * SECTOR;
        match rng.below(14) {
            0 | 1 => {
                let most = if rng.one_in(2) { 300 } else { 20_000 };
                let (offset, data) = (
                    offset + rng.below(5000),
                    plain(rng.below(most) as usize + 1, salt),
                );
                self.log
                    .push(format!("write {which} {offset} {}", data.len()));
                let written = self.volume.write(id, offset, &data);
                if self.done(written).is_some() {
                    put(&mut self.files[which], offset, &data);
                }
            }
            2 => {
                let most = if rng.one_in(3) { 6000 } else { 300_000 };
                let size = rng.below(most);
                self.log.push(format!("truncate {which} {size}"));
                let cut = self.volume.truncate(id, size);
                match self.done(cut) {
                    Some(()) => self.files[which].resize(size as usize, 0),
                    None => self.take_as_it_is(which),
                }
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
            9 => self.fallocate(rng, which, offset),
            10 => {
                self.log.push("commit".into());
                self.volume.sync().unwrap();
            }
            11 => {
                let mut data = vec![0; (MIB + rng.below(3) * SECTOR) as usize];
                rng.fill(&mut data);
                self.log
                    .push(format!("write {which} {offset} {}", data.len()));
                let written = self.volume.write(id, offset, &data);
                match self.done(written) {
                    Some(()) => put(&mut self.files[which], offset, &data),
                    None => self.take_as_it_is(which),
                }
            }
            _ => {
                self.log.push(format!("fsync {which}"));
                self.volume.fsync(id).unwrap();
                self.cut(which);
            }
        }
        assert!(
            content(&self.volume, id) == self.files[which],
            "{}",
            self.log.join("\n")
        );
    }

    fn fallocate(&mut self, rng: &mut Rng, which: usize, offset: u64) {
        let (mode, zeroes, keeps) = [
            (Fallocate::Reserve { keep_size: false }, false, false),
            (Fallocate::Reserve { keep_size: true }, false, true),
            (Fallocate::PunchHole, true, true),
            (Fallocate::ZeroRange { keep_size: false }, true, false),
            (Fallocate::ZeroRange { keep_size: true }, true, true),
        ][rng.below(5) as usize];
        let (offset, len) = if rng.one_in(2) {
            (offset, (1 + rng.below(16)) * SECTOR)
        } else {
            (offset + rng.below(SECTOR), 1 + rng.below(30_000))
        };
        self.log.push(format!("{mode:?} {which} {offset} {len}"));
        let allocated = self.volume.fallocate(self.ids[which], mode, offset, len);
        if self.done(allocated).is_none() {
            return self.take_as_it_is(which);
        }
        let file = &mut self.files[which];
        let size = file.len() as u64;
        if !keeps && offset + len > size {
            file.resize((offset + len) as usize, 0);
        }
        if zeroes {
            let end = (offset + len).min(file.len() as u64);
            file[offset.min(end) as usize..end as usize].fill(0);
        }
    }

    /// Unwraps a result. Returns None on ENOSPC.
    fn done<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Err(error) if error.is_no_space() => {
                self.log.push("no space".into());
                None
            }
            result => Some(result.unwrap()),
        }
    }

    /// Reads the contents of a file after a call that may have been done in part.
    fn take_as_it_is(&mut self, which: usize) {
        self.files[which] = content(&self.volume, self.ids[which]);
    }

    /// Checks the volume after a cut right after the sync of a file.
    fn cut(&self, which: usize) {
        let volume = open(Arc::new(self.device.snapshot()), &options());
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
        self.log.push(format!(
            "encoded {which} {offset} {part:?} of {} bytes {}",
            plain.len(),
            bytes.len()
        ));
        let part = &plain[part.start as usize..part.end as usize];
        let stored = self.volume.write_encoded(id, offset, &data);
        let done = match self.done(stored) {
            Some(false) => {
                let written = self.volume.write(id, offset, part);
                self.done(written)
            }
            stored => stored.map(|_| ()),
        };
        if done.is_none() {
            return;
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
        let (from_id, to_id) = (self.ids[source], self.ids[which]);
        let cloned = self.volume.clone_range(from_id, from, len, to_id, offset);
        if self.done(cloned).is_none() {
            return self.take_as_it_is(which);
        }
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
        let mut world = World::new(&mut rng);
        for salt in 0..60 {
            world.step(&mut rng, salt);
        }
    }
}
