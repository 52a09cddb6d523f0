//! Scrub: reads the data of all mirrors and verifies it with the checksums.

use ubtrfs_device::{DeviceError, Pool};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId};

use crate::fault::Fault;
use crate::issue::Place;
use crate::state::State;
use crate::volume::CheckedVolume;

/// Bytes of data per read.
const CHUNK_BYTES: usize = 1 << 20;
/// The direct read and the reconstruction by each parity. Further mirrors only exclude other members.
const MAX_PARITY_MIRRORS: usize = 3;

pub(crate) struct DataReader<'v> {
    pool: &'v Pool,
    /// The tree that contains the checksums.
    tree: RootId,
    csum_type: CsumType,
    sectorsize: usize,
    data: Vec<u8>,
    sums: Vec<u8>,
}

impl<'v> DataReader<'v> {
    pub(crate) fn new(volume: &'v CheckedVolume, tree: RootId) -> DataReader<'v> {
        DataReader {
            pool: volume.pool(),
            tree,
            csum_type: volume.superblock().csum_type(),
            sectorsize: volume.sectorsize() as usize,
            data: vec![0; CHUNK_BYTES],
            sums: Vec::new(),
        }
    }

    /// Verifies data on all mirrors. `wanted` are the checksums of consecutive sectors starting at `start`.
    pub(crate) fn check(&mut self, state: &mut State<'_>, start: u64, wanted: &[u8]) {
        let sectors = CHUNK_BYTES / self.sectorsize;
        let mut at = start;
        for part in wanted.chunks(sectors * self.csum_type.size_bytes()) {
            let count = part.len() / self.csum_type.size_bytes();
            let mirrors = self.mirrors(at);
            for mirror in 1..=mirrors {
                self.check_mirror(state, at, part, mirror);
            }
            at = at.saturating_add((count * self.sectorsize) as u64);
        }
    }

    fn mirrors(&self, at: u64) -> usize {
        let Some(chunk) = self.pool.chunk_map().find(Logical(at)) else {
            return 1;
        };
        if chunk.has_parity() {
            chunk.mirrors().min(MAX_PARITY_MIRRORS)
        } else {
            chunk.mirrors()
        }
    }

    fn check_mirror(&mut self, state: &mut State<'_>, start: u64, wanted: &[u8], mirror: usize) {
        let csum_bytes = self.csum_type.size_bytes();
        let count = wanted.len() / csum_bytes;
        let len = count * self.sectorsize;
        let data = &mut self.data[..len];
        let read = self.pool.read_mirror(Logical(start), data, mirror);
        if read.is_err() {
            self.check_sectors(state, start, wanted, mirror);
            return;
        }
        self.sums.clear();
        self.csum_type
            .compute_sectors(data, self.sectorsize, &mut self.sums);
        if self.sums == wanted {
            return;
        }
        let found = self.sums.chunks(csum_bytes);
        for (index, (found, wanted)) in found.zip(wanted.chunks(csum_bytes)).enumerate() {
            if found != wanted {
                let at = start + (index * self.sectorsize) as u64;
                mismatch(self.pool, state, self.tree, (at, mirror));
            }
        }
    }

    /// Verifies sectors one by one, for data that failed to read in one request. Missing devices and data without a
    /// chunk were reported before.
    fn check_sectors(&mut self, state: &mut State<'_>, start: u64, wanted: &[u8], mirror: usize) {
        let csum_bytes = self.csum_type.size_bytes();
        let mut unread: Option<(u64, u64)> = None;
        let tree = self.tree;
        let report = |state: &mut State<'_>, run: &mut Option<(u64, u64)>| {
            if let Some((at, length)) = run.take() {
                let fault = Fault::DataUnreadable { mirror, length };
                state.add(Place::tree(tree).at(at), fault);
            }
        };
        for (index, wanted) in wanted.chunks(csum_bytes).enumerate() {
            let at = start.saturating_add((index * self.sectorsize) as u64);
            let data = &mut self.data[..self.sectorsize];
            match self.pool.read_mirror(Logical(at), data, mirror) {
                Ok(()) => {
                    report(state, &mut unread);
                    let found = self.csum_type.compute(data);
                    if found.significant(self.csum_type) != wanted {
                        mismatch(self.pool, state, self.tree, (at, mirror));
                    }
                }
                Err(DeviceError::Missing { .. } | DeviceError::NoChunk { .. }) => {}
                Err(_) => {
                    let sector = self.sectorsize as u64;
                    unread = Some(unread.map_or((at, sector), |(at, len)| (at, len + sector)));
                }
            }
        }
        report(state, &mut unread);
    }
}

fn mismatch(pool: &Pool, state: &mut State<'_>, tree: RootId, (at, mirror): (u64, usize)) {
    let place = Place::tree(tree).at(at);
    let chunk = pool.chunk_map().find(Logical(at));
    let piece = chunk.map(|chunk| {
        let direct = if chunk.has_parity() { 1 } else { mirror };
        chunk.piece(at - chunk.logical().0, 1, direct)
    });
    let physical = piece.map_or(0, |piece| piece.physical.0);
    let place = Place {
        devid: piece.map(|piece| piece.devid),
        ..place
    };
    state.add(place, Fault::DataCsum { mirror, physical });
}
