//! The memory for filling a volume does not depend on the number of files. A test process of its own, to measure its
//! memory.

use std::fs::{self, File};
use std::io::{self, BufWriter, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::thread;

use ubtrfs_device::{Access, BlockDevice, FileDevice};
use ubtrfs_format::item::Timespec;
use ubtrfs_mkfs::{FillOptions, Identity, Input, MkfsOptions, Scratch, fill};
use ubtrfs_spill::ScratchDir;

const FEW: u64 = 4_000;
const MANY: u64 = 30_000;
/// For all intermediate data.
const BUDGET_BYTES: usize = 4 << 20;

fn member(name: &str, link: Option<&str>, data: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_700_000_000);
    header.set_size(data.len() as u64);
    if let Some(target) = link {
        header.set_entry_type(tar::EntryType::Link);
        header.set_link_name(target).unwrap();
    }
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Writes an archive of files in pseudo-random order, each with a hard link.
fn archive(files: u64, out: PipeWriter) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for number in 0..files {
        let number = number * 7919 % files;
        let name = format!("files/{}/file-{number}", number / 1000);
        out.write_all(&member(&name, None, b"small"))?;
        let link = format!("links/{}/{number}", number / 1000);
        out.write_all(&member(&link, Some(&name), b""))?;
    }
    out.write_all(&[0; 1024])
}

/// Returns the peak memory of the process during a fill.
fn peak_bytes(files: u64) -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("v.img");
    File::create(&image).unwrap().set_len(1 << 30).unwrap();
    let device = FileDevice::open(&image, Access::Write).unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let writer = thread::spawn(move || archive(files, writer));
    let created = Timespec {
        sec: 1_700_000_000.into(),
        nsec: 0.into(),
    };
    let options = FillOptions {
        scratch: Scratch {
            memory_bytes: BUDGET_BYTES,
            ..Scratch::new(ScratchDir::named(dir.path()))
        },
        ..FillOptions::default()
    };
    let sized: [(&dyn BlockDevice, u64); 1] = [(&device, device.len_bytes())];
    let input = Input::Archive(File::from(OwnedFd::from(reader)));
    let made = fill(
        &MkfsOptions::default(),
        &Identity::random(1, created),
        &sized,
        input,
        &options,
        &mut (),
    );
    writer.join().unwrap().unwrap();
    assert_eq!(made.unwrap().stats.files, files);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

#[test]
fn more_members_take_no_more_memory() {
    let few = peak_bytes(FEW);
    let many = peak_bytes(MANY);
    // Each run has a read buffer, and tree blocks are recorded. This is less memory than the names would need.
    let grown = many.saturating_sub(few);
    assert!(grown < (MANY - FEW) * 450, "{few}, then {many}");
}
