//! Files without copy on write. After a cut each sector is from some moment since the file's last sync, which
//! may differ between sectors. Preallocated space shows zeros or the data of a whole commit.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{Fallocate, FileId, NewInode, Volume};
use ubtrfs_sim::oracle::{Mark, Promise};
use ubtrfs_sim::record::{CrashPlan, CrashState, Recorder};
use ubtrfs_sim::{Rng, seed};

use super::{Survivor, each_cut, recorded};
use crate::devices::{Layout, MIB, check, open, quiet};
use crate::soak::count;

const FILE_BYTES: u64 = 1 << 20;
/// The bytes that a device writes atomically.
const SECTOR_BYTES: usize = 512;

/// The contents after each number of operations.
type Versions = Vec<Vec<u8>>;

/// In marks, a file's number serves as the thread number, as each file may be synced alone.
const NAMES: [&[u8]; 3] = [b"reserved", b"in place", b"in place as well"];
const RESERVED: usize = 0;
const FILLED: usize = 2;

fn prepare(volume: &Volume) -> [FileId; 3] {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let make = |name: &[u8]| volume.create(top, name, &NewInode::file(0o600)).unwrap();
    let files = NAMES.map(make);
    for file in &files[RESERVED + 1..] {
        volume
            .set_inode_flags(*file, InodeFlags::NODATACOW)
            .unwrap();
    }
    for file in files {
        let mode = Fallocate::Reserve { keep_size: true };
        volume.fallocate(file, mode, 0, FILE_BYTES).unwrap();
    }
    let filled = files[FILLED];
    volume.write(filled, 0, &[1; FILE_BYTES as usize]).unwrap();
    volume.sync().unwrap();
    files
}

/// Writes at a random offset, buffered or directly.
fn write(volume: &Volume, file: FileId, content: &mut Vec<u8>, rng: &mut Rng) {
    let len = 1 + rng.below(60_000);
    let offset = rng.below(FILE_BYTES - len);
    let is_direct = rng.one_in(3);
    let (offset, len) = if is_direct {
        (
            offset & !4095,
            len.next_multiple_of(4096)
                .min(FILE_BYTES - (offset & !4095)),
        )
    } else {
        (offset, len)
    };
    let mut bytes = vec![0; len as usize];
    rng.fill(&mut bytes);
    if is_direct {
        volume.write_direct(file, offset, &bytes).unwrap()
    } else {
        volume.write(file, offset, &bytes).unwrap()
    }
    let end = offset as usize + bytes.len();
    content.resize(content.len().max(end), 0);
    content[offset as usize..end].copy_from_slice(&bytes);
}

fn read(survivor: &Survivor, name: &[u8]) -> Result<Vec<u8>, String> {
    let volume = survivor.engine.volume();
    let all = || {
        let top = volume.root_dir(RootId::FS_TREE)?;
        let file = volume.resolve(top, name)?;
        let mut bytes = vec![0; volume.attr(file)?.size as usize];
        volume.read(file, 0, &mut bytes)?;
        Ok(bytes)
    };
    all().map_err(|error: ubtrfs_fs::Error| error.to_string())
}

/// Checks the size, and that each sector is from one of the versions.
fn is_mixture(found: &[u8], versions: &[Vec<u8>]) -> Result<(), String> {
    if !versions.iter().any(|version| version.len() == found.len()) {
        return Err(format!("a size of {} bytes", found.len()));
    }
    for (number, sector) in found.chunks(SECTOR_BYTES).enumerate() {
        let at = number * SECTOR_BYTES;
        let is_of = |version: &Vec<u8>| {
            let held = version.len().clamp(at, at + sector.len()) - at;
            sector[..held] == version[at.min(version.len())..at.min(version.len()) + held]
                && sector[held..].iter().all(|byte| *byte == 0)
        };
        if !versions.iter().any(is_of) {
            return Err(format!(
                "bytes at {at} are of no moment since the last sync"
            ));
        }
    }
    Ok(())
}

#[test]
fn sectors_written_in_place_are_old_or_new() {
    let seed = seed("cuts, in place");
    let mut rng = Rng::new(seed);
    let recorder = Recorder::new();
    let layout = Layout::new(1, 256 * MIB);
    let devices = recorded(&layout, &recorder);
    let volume = open(&devices, &quiet()).unwrap();
    let files = prepare(&volume);
    recorder.mark(Mark::Durable { thread: 0, ops: 0 });
    let mut versions: [Versions; 3] = std::array::from_fn(|_| vec![Vec::new()]);
    versions[FILLED][0] = vec![1; FILE_BYTES as usize];
    for ops in 1..=count(90, 400) {
        for thread in 0..NAMES.len() as u8 {
            recorder.mark(Mark::Started { thread, ops });
        }
        for versions in &mut versions {
            versions.push(versions[ops - 1].clone());
        }
        let number = rng.below(NAMES.len() as u64) as usize;
        let durable = |number| {
            let thread = number as u8;
            recorder.mark(Mark::Durable { thread, ops });
        };
        match rng.below(8) {
            0 => {
                volume.sync().unwrap();
                (0..NAMES.len()).for_each(durable);
            }
            // One after another; the first sync commits for all.
            1..4 => {
                let more = rng.below(NAMES.len() as u64) as usize;
                for number in (number..=number + more).map(|number| number % NAMES.len()) {
                    volume.fsync(files[number]).unwrap();
                    durable(number);
                }
            }
            _ => {
                let content = &mut versions[number][ops];
                write(&volume, files[number], content, &mut rng);
            }
        }
    }
    drop(volume);
    check(&devices).unwrap();

    let plan = CrashPlan::new(seed)
        .random_states(count(40, 1000))
        .since(Mark::Durable { thread: 0, ops: 0 });
    let judge = |state: &CrashState| {
        let survivor = Survivor::open(state, &quiet())?;
        for (number, versions) in versions.iter().enumerate() {
            let promise = Promise::of_thread(state.marks(), number as u8);
            let Promise {
                at_least, at_most, ..
            } = promise;
            let since = &versions[at_least..=at_most.max(at_least)];
            let found = read(&survivor, NAMES[number])?;
            if number != RESERVED {
                is_mixture(&found, since).map_err(|fault| format!("file {number}: {fault}"))?;
            } else if !since.contains(&found) {
                return Err("reserved space shows what it never held".to_owned());
            }
        }
        survivor.stays_usable()
    };
    let cuts = each_cut(&recorder.recording(), &plan, 1, judge);
    println!("{cuts} states");
}
