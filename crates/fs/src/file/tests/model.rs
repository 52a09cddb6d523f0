//! Random calls on a few files, compared with plain byte vectors.

use ubtrfs_format::compress::Compression;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Rng, seed};
use ubtrfs_storage::FileId;

use super::fixture::{MIB, Rig, options};
use crate::file::Fallocate;
use crate::inode::Compress;
use crate::{Error, OpenOptions};

/// The expected data of a file.
struct File {
    id: FileId,
    flags: InodeFlags,
    bytes: Vec<u8>,
}

struct Script {
    rig: Rig,
    rng: Rng,
    files: Vec<File>,
    /// The usual upper limit of offsets and lengths.
    reach: u64,
}

/// Returns the bytes of one write, of random compressibility.
fn content(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![rng.below(256) as u8; len];
    match rng.below(4) {
        0 => rng.fill(&mut bytes),
        1 => {
            for chunk in bytes.chunks_mut(64) {
                chunk[0] = rng.below(256) as u8;
            }
        }
        2 => bytes.fill(0),
        _ => {}
    }
    bytes
}

impl Script {
    fn new(rig: Rig, rng: Rng, reach: u64) -> Script {
        let kinds = [
            InodeFlags::empty(),
            InodeFlags::empty(),
            InodeFlags::NODATASUM,
            InodeFlags::NODATACOW | InodeFlags::NODATASUM,
            InodeFlags::NODATACOW | InodeFlags::NODATASUM,
        ];
        let files = kinds
            .into_iter()
            .map(|flags| File {
                id: rig.file(flags),
                flags,
                bytes: Vec::new(),
            })
            .collect();
        Script {
            rig,
            rng,
            files,
            reach,
        }
    }

    fn offset(&mut self) -> u64 {
        let sector = 4096;
        let offset = self.rng.below(self.reach);
        match self.rng.below(3) {
            0 => offset - offset % sector,
            1 => offset.min(self.rng.below(5000)),
            _ => offset,
        }
    }

    fn len(&mut self) -> u64 {
        match self.rng.below(6) {
            0 => 1 + self.rng.below(100),
            1 => 4096 * (1 + self.rng.below(8)),
            2 => 1 + self.rng.below(self.reach),
            _ => 1 + self.rng.below(20_000),
        }
    }

    fn step(&mut self) {
        let volume = self.rig.volume().clone();
        let at = self.rng.below(self.files.len() as u64) as usize;
        let id = self.files[at].id;
        let (offset, len) = (self.offset(), self.len());
        let end = offset + len;
        let size = self.files[at].bytes.len() as u64;
        match self.rng.below(20) {
            0..8 => {
                let bytes = content(&mut self.rng, len as usize);
                volume.write(id, offset, &bytes).unwrap();
                let file = &mut self.files[at].bytes;
                if size < end {
                    file.resize(end as usize, 0);
                }
                file[offset as usize..end as usize].copy_from_slice(&bytes);
            }
            8 => {
                let bytes = content(&mut self.rng, len as usize);
                assert_eq!(volume.append(id, &bytes).unwrap(), size);
                self.files[at].bytes.extend_from_slice(&bytes);
            }
            9 => {
                let sector = u64::from(volume.superblock().sectorsize.get());
                let (offset, len) = (offset - offset % sector, len.next_multiple_of(sector));
                let bytes = content(&mut self.rng, len as usize);
                volume.write_direct(id, offset, &bytes).unwrap();
                let file = &mut self.files[at].bytes;
                let end = (offset + len) as usize;
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[offset as usize..end].copy_from_slice(&bytes);
            }
            10 => {
                volume.truncate(id, offset).unwrap();
                self.files[at].bytes.resize(offset as usize, 0);
            }
            11 => {
                volume
                    .fallocate(id, Fallocate::PunchHole, offset, len)
                    .unwrap();
                let file = &mut self.files[at].bytes;
                let end = (end as usize).min(file.len());
                if (offset as usize) < end {
                    file[offset as usize..end].fill(0);
                }
            }
            12 => {
                let keep_size = self.rng.one_in(2);
                let mode = Fallocate::ZeroRange { keep_size };
                volume.fallocate(id, mode, offset, len).unwrap();
                self.zero(at, offset, end, keep_size);
            }
            13 => {
                let keep_size = self.rng.one_in(2);
                let mode = Fallocate::Reserve { keep_size };
                volume.fallocate(id, mode, offset, len).unwrap();
                if !keep_size && size < end {
                    self.files[at].bytes.resize(end as usize, 0);
                }
            }
            14 | 15 => self.clone_some(at),
            16 => self.compare(at),
            17 if self.rng.one_in(4) => volume.sync().unwrap(),
            18 if self.rng.one_in(4) => volume.fsync(id).unwrap(),
            _ => volume.files.write_back_all().unwrap(),
        }
    }

    fn zero(&mut self, at: usize, offset: u64, end: u64, keep_size: bool) {
        let file = &mut self.files[at].bytes;
        if !keep_size && (file.len() as u64) < end {
            file.resize(end as usize, 0);
        }
        let end = (end as usize).min(file.len());
        if (offset as usize) < end {
            file[offset as usize..end].fill(0);
        }
    }

    fn clone_some(&mut self, dst: usize) {
        let volume = self.rig.volume().clone();
        let sector = u64::from(volume.superblock().sectorsize.get());
        let src = self.rng.below(self.files.len() as u64) as usize;
        let (from, to) = (self.offset(), self.offset());
        let (from, to) = (from - from % sector, to - to % sector);
        let size = self.files[src].bytes.len() as u64;
        let to_end = self.rng.one_in(3);
        let len = if to_end {
            size.saturating_sub(from)
        } else {
            self.len().next_multiple_of(sector)
        };
        let (src_id, dst_id) = (self.files[src].id, self.files[dst].id);
        let outcome = volume.clone_range(src_id, from, if to_end { 0 } else { len }, dst_id, to);
        let whole = len.next_multiple_of(sector);
        let dst_size = self.files[dst].bytes.len() as u64;
        let legal = from + len <= size
            && from <= size
            && (len == whole || to + len >= dst_size)
            && (src != dst || from.abs_diff(to) >= whole)
            && !(self.files[src].flags ^ self.files[dst].flags).contains(InodeFlags::NODATASUM);
        match outcome {
            Ok(cloned) => {
                assert!(legal && cloned == len);
                let bytes = self.files[src].bytes[from as usize..(from + len) as usize].to_vec();
                let file = &mut self.files[dst].bytes;
                if len > 0 && file.len() < (to + len) as usize {
                    file.resize((to + len) as usize, 0);
                }
                if len > 0 {
                    file[to as usize..(to + len) as usize].copy_from_slice(&bytes);
                }
            }
            Err(Error::Unaligned | Error::Invalid(_) | Error::CsumsDiffer) => {
                assert!(!legal, "{from} {to} {len} of {size} into {dst_size}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn compare(&self, at: usize) {
        let volume = self.rig.volume();
        let file = &self.files[at];
        let attr = volume.attr(file.id).unwrap();
        assert_eq!(attr.size, file.bytes.len() as u64, "size of {:?}", file.id);
        let mut found = vec![0xaa; file.bytes.len() + 1];
        let len = volume.read(file.id, 0, &mut found).unwrap();
        found.truncate(len);
        let differs = found.iter().zip(&file.bytes).position(|(a, b)| a != b);
        assert_eq!((len, differs), (file.bytes.len(), None), "{:?}", file.id);
        self.compare_holes(file);
    }

    /// Checks that reported holes have no data, and that holes and data alternate up to the end.
    fn compare_holes(&self, file: &File) {
        let volume = self.rig.volume();
        let size = file.bytes.len() as u64;
        let mut at = 0;
        while at < size {
            let data = volume.seek_data(file.id, at).unwrap().unwrap_or(size);
            assert!(data >= at);
            assert!(
                file.bytes[at as usize..data as usize]
                    .iter()
                    .all(|&b| b == 0)
            );
            if data == size {
                break;
            }
            let hole = volume.seek_hole(file.id, data).unwrap().unwrap();
            assert!(
                hole > data && hole <= size,
                "{hole} behind {data} of {size}"
            );
            at = hole;
        }
    }

    fn compare_all(&self) {
        (0..self.files.len()).for_each(|at| self.compare(at));
    }

    fn run(mut self, rounds: usize, steps: usize) {
        for _ in 0..rounds {
            for _ in 0..steps {
                self.step();
            }
            self.compare_all();
            self.rig.assert_sound();
            self.compare_all();
            self.rig.reopen();
            self.compare_all();
        }
    }
}

fn run(name: &str, mkfs: &MkfsOptions, open: OpenOptions, reach: u64, rounds: usize) {
    let rng = Rng::new(seed(name));
    let rig = Rig::on(mkfs, 512 * MIB, open);
    Script::new(rig, rng, reach).run(rounds, 120);
}

/// BUFFER-2
#[test]
fn any_history_reads_back() {
    let mkfs = MkfsOptions::default();
    run("any_history_reads_back", &mkfs, options(), 300_000, 6);
}

#[test]
fn small_files_read_back() {
    let mkfs = MkfsOptions::default();
    run("small_files_read_back", &mkfs, options(), 9000, 8);
}

#[test]
fn compressed_files_read_back() {
    for (algorithm, force) in [
        (Compression::Zlib, false),
        (Compression::Lzo, true),
        (Compression::Zstd, false),
    ] {
        let compress = Compress {
            algorithm,
            level: 0,
            force,
        };
        let name = format!("compressed_files_read_back {algorithm}");
        let open = options().compress(compress);
        run(&name, &MkfsOptions::default(), open.clone(), 400_000, 2);
        run(&name, &MkfsOptions::default(), open, 6000, 2);
    }
}

#[test]
fn other_geometries_read_back() {
    for (nodesize, sectorsize, features) in [
        (4096, 4096, "^no-holes"),
        (16384, 4096, "^no-holes,^free-space-tree,^block-group-tree"),
        (65536, 16384, ""),
        (16384, 4096, "block-group-tree"),
    ] {
        let mut mkfs = MkfsOptions {
            nodesize: Some(nodesize),
            sectorsize,
            csum_type: CsumType::XxHash64,
            ..MkfsOptions::default()
        };
        mkfs.features.apply_list(features).unwrap();
        let name = format!("other_geometries_read_back {nodesize} {sectorsize} {features}");
        run(&name, &mkfs, options(), 200_000, 2);
    }
}

#[test]
fn little_room_in_the_buffer_changes_nothing() {
    let name = "little_room_in_the_buffer_changes_nothing";
    let open = options().buffer_bytes(64 << 10);
    run(name, &MkfsOptions::default(), open, 300_000, 2);
}
