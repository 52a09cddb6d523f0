//! Files that are written where they lie: after a cut each of their sectors is as it was at some moment since
//! the last sync, which need not be the same for all. Space that was only reserved shows zeros or a whole
//! commit's data.

use ubtrfs_engine::{Fallocate, FileId, NewInode, Volume};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_sim::oracle::{Mark, Promise};
use ubtrfs_sim::record::{CrashPlan, CrashState, Recorder};
use ubtrfs_sim::{Rng, seed};

use super::{Survivor, each_cut, recorded};
use crate::devices::{Layout, MIB, check, open, quiet};
use crate::soak::count;

const FILE_BYTES: u64 = 1 << 20;
/// What a device writes as a whole.
const SECTOR_BYTES: usize = 512;

/// Contents after each number of operations.
type Versions = Vec<Vec<u8>>;

struct Files {
    in_place: FileId,
    reserved: FileId,
}

fn prepare(volume: &Volume) -> Files {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let make = |name: &[u8]| volume.create(top, name, &NewInode::file(0o600)).unwrap();
    let files = Files {
        in_place: make(b"in place"),
        reserved: make(b"reserved"),
    };
    volume
        .set_inode_flags(files.in_place, InodeFlags::NODATACOW)
        .unwrap();
    for file in [files.in_place, files.reserved] {
        let mode = Fallocate::Reserve { keep_size: true };
        volume.fallocate(file, mode, 0, FILE_BYTES).unwrap();
    }
    volume.sync().unwrap();
    files
}

/// Writes at a random place, through the buffer or past it.
fn write(volume: &Volume, file: FileId, content: &mut Vec<u8>, rng: &mut Rng) {
    let len = 1 + rng.below(60_000);
    let offset = rng.below(FILE_BYTES - len);
    let is_direct = rng.one_in(3);
    let (offset, len) = match is_direct {
        true => (
            offset & !4095,
            len.next_multiple_of(4096)
                .min(FILE_BYTES - (offset & !4095)),
        ),
        false => (offset, len),
    };
    let mut bytes = vec![0; len as usize];
    rng.fill(&mut bytes);
    match is_direct {
        true => volume.write_direct(file, offset, &bytes).unwrap(),
        false => volume.write(file, offset, &bytes).unwrap(),
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
    all().map_err(|error: ubtrfs_engine::Error| error.to_string())
}

/// Whether each sector is that of one of the versions, and the size.
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
    let mut in_place: Versions = vec![Vec::new()];
    let mut reserved: Versions = vec![Vec::new()];
    for ops in 1..=count(60, 400) {
        recorder.mark(Mark::Started { thread: 0, ops });
        let mut contents = (in_place[ops - 1].clone(), reserved[ops - 1].clone());
        match rng.below(8) {
            0 => {
                volume.sync().unwrap();
                recorder.mark(Mark::Durable { thread: 0, ops });
            }
            1..5 => write(&volume, files.in_place, &mut contents.0, &mut rng),
            _ => write(&volume, files.reserved, &mut contents.1, &mut rng),
        }
        in_place.push(contents.0);
        reserved.push(contents.1);
    }
    drop(volume);
    check(&devices).unwrap();

    let plan = CrashPlan::new(seed)
        .random_states(count(40, 1000))
        .since(Mark::Durable { thread: 0, ops: 0 });
    let judge = |state: &CrashState| {
        let Promise { at_least, at_most } = Promise::of(state.marks());
        let since = at_least..=at_most.max(at_least);
        let survivor = Survivor::open(state, &quiet())?;
        is_mixture(&read(&survivor, b"in place")?, &in_place[since.clone()])?;
        let found = read(&survivor, b"reserved")?;
        if !reserved[since].contains(&found) {
            return Err("reserved space shows what it never held".to_owned());
        }
        survivor.goes_on()
    };
    let cuts = each_cut(&recorder.recording(), &plan, 1, judge);
    println!("{cuts} states");
}
