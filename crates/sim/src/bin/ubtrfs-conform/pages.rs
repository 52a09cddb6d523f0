//! Files with one writer each, while other threads read, drop and modify their pages through mappings. Each
//! acknowledged write is read back.
//!
//! A file has 16 pages. The writer writes page 0 with direct IO, and a page and a half from page 4 on through the
//! cache. Other threads constantly read these pages and make the kernel drop pages. One stores a counter through a
//! mapping after the writer's bytes in page 5, and reads it back: neither may lose its bytes. Other programs may make
//! the mount drop pages at the same time, as commands on it do.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::Outcome;

const PAGE: usize = 4096;
const PAGES: usize = 16;
/// The part that is written through the cache.
const WRITTEN_AT: u64 = 4 * PAGE as u64;
const WRITTEN: usize = PAGE + 2000;
/// Offset of the counter in the last page of this part.
const COUNTER_AT: usize = 4000;
const READERS: usize = 2;

/// A page of memory that is aligned for direct writes.
#[repr(align(4096))]
struct Aligned([u8; PAGE]);

/// Runs the load on files in a folder, for this many seconds.
pub(super) fn run(dir: &Path, seconds: u64, files: usize) -> Outcome {
    let end = Instant::now() + Duration::from_secs(seconds);
    let written = AtomicU64::new(0);
    let has_failed = Arc::new(AtomicBool::new(false));
    let runs = |number: usize| {
        let path = dir.join(format!("pages-{number}"));
        let alive = || Instant::now() < end && !has_failed.load(Ordering::Relaxed);
        one_file(&path, &alive, &written).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let runs = &runs;
        let threads: Vec<_> = (0..files)
            .map(|number| scope.spawn(move || runs(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a thread panicked".into()))
            })
            .collect()
    });
    let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    println!("pages: {} writes", written.load(Ordering::Relaxed));
    match failures.first() {
        Some(failure) => Err(failure.clone().into()),
        None => Ok(()),
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn one_file(
    path: &Path,
    alive: &(dyn Fn() -> bool + Sync),
    written: &AtomicU64,
) -> Result<(), String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    let file = open(path, OFlags::empty()).map_err(told)?;
    file.write_all_at(&[0; PAGES * PAGE], 0).map_err(told)?;
    file.sync_all().map_err(told)?;
    let others_failed: std::sync::Mutex<Option<String>> = std::sync::Mutex::default();
    let note = |outcome: Result<(), String>| {
        if let Err(error) = outcome {
            others_failed.lock().unwrap().get_or_insert(error);
        }
    };
    let outcome = thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| note(read(&file, alive).map_err(told)));
        }
        scope.spawn(|| note(give_up_pages(&file, alive).map_err(told)));
        scope.spawn(|| note(count_through_mapping(&file, alive)));
        write(path, &file, alive, written)
    });
    let others = others_failed.into_inner().unwrap();
    outcome.and(others.map_or(Ok(()), Err))
}

fn read(file: &File, alive: &dyn Fn() -> bool) -> io::Result<()> {
    let mut bytes = [0; 2 * PAGE];
    while alive() {
        file.read_exact_at(&mut bytes, WRITTEN_AT)?;
    }
    Ok(())
}

fn give_up_pages(file: &File, alive: &dyn Fn() -> bool) -> io::Result<()> {
    while alive() {
        fadvise(file, 0, None, Advice::DontNeed)?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn count_through_mapping(file: &File, alive: &dyn Fn() -> bool) -> Result<(), String> {
    let at = WRITTEN_AT + PAGE as u64;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let mut count = 0u64;
    while alive() {
        // SAFETY: new memory at an address chosen by the kernel.
        #[allow(unsafe_code)]
        let start = unsafe { mmap(null_mut(), PAGE, access, MapFlags::SHARED, file, at) }
            .map_err(|error| error.to_string())?;
        // SAFETY: the mapping has one page, which exists in the file, and only this thread stores to these bytes.
        #[allow(unsafe_code)]
        let found = unsafe {
            let counter = start.cast::<u8>().add(COUNTER_AT).cast::<u64>();
            let found = counter.read_volatile();
            counter.write_volatile(count + 1);
            found
        };
        // SAFETY: the mapping has this length, and there are no references to it.
        #[allow(unsafe_code)]
        unsafe { msync(start, PAGE, MsyncFlags::SYNC).and_then(|()| munmap(start, PAGE)) }
            .map_err(|error| error.to_string())?;
        if found != count {
            return Err(format!("a mapping has {found} where {count} was stored"));
        }
        count += 1;
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn write(
    path: &Path,
    file: &File,
    alive: &dyn Fn() -> bool,
    written: &AtomicU64,
) -> Result<(), String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    let direct = open(path, OFlags::DIRECT).map_err(told)?;
    let block = Box::new(Aligned([b'd'; PAGE]));
    let mut found = [0; WRITTEN];
    let mut number = 0u64;
    while alive() {
        direct.write_all_at(&block.0, 0).map_err(told)?;
        file.read_exact_at(&mut found[..PAGE], 0).map_err(told)?;
        for _ in 0..8 {
            number += 1;
            let word = number.to_le_bytes();
            let bytes = word.repeat(WRITTEN / word.len());
            file.write_all_at(&bytes, WRITTEN_AT).map_err(told)?;
            file.read_exact_at(&mut found, WRITTEN_AT).map_err(told)?;
            if found[..] != bytes[..] {
                let at = found
                    .iter()
                    .zip(&bytes)
                    .position(|(found, byte)| found != byte);
                let at = at.unwrap_or(0) / word.len() * word.len();
                let older = u64::from_le_bytes(found[at..at + 8].try_into().unwrap_or_default());
                return Err(format!(
                    "{}: write {number} was answered, and byte {at} of it is of write {older}",
                    path.display()
                ));
            }
        }
        written.fetch_add(8, Ordering::Relaxed);
    }
    Ok(())
}
