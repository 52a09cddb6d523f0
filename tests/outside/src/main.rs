//! A program like one of another project: it only depends on the library.

#![deny(warnings)]

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs::{
    Access, BlockDevice, BlockGroupKind, ChangeKind, Checker, Compress, Compression, CopyOptions,
    CsumType, DeviceAccess, DeviceDiscard, DeviceRead, DeviceWrite, DiscardGeometry, FileDevice,
    FileFlags, FileTimes, MemDevice, MkfsOptions, OpenOptions, PastEnd, Problems, Profile,
    ReceiveOptions, SendOptions, Snapshot, StreamDump, Subvolume, Volume,
};

type Outcome = Result<(), Box<dyn Error>>;

/// A folder that is removed at the end of the program.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("ubtrfs-outside-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A custom device that counts flushes.
#[derive(Debug)]
struct Counting {
    inner: MemDevice,
    flushes: std::sync::atomic::AtomicU64,
}

impl BlockDevice for Counting {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        let flushes = &self.flushes;
        flushes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.inner.flush()
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        Some(DiscardGeometry::new(4096, 1 << 30))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        PastEnd::check(offset, len, self.len_bytes())?;
        self.inner.discard(offset, len)
    }

    fn discard_batch(&self, discards: &mut [DeviceDiscard]) {
        for discard in discards {
            discard.result = self.discard(discard.offset, discard.len);
        }
    }

    fn read_batch(&self, reads: &mut [DeviceRead<'_>]) {
        for read in reads {
            read.result = self.read_at(read.buf, read.offset);
        }
    }

    fn write_batch(&self, writes: &mut [DeviceWrite<'_>]) {
        self.inner.write_batch(writes);
    }
}

/// Opens a device, with only the library's error type.
fn length(path: &Path) -> ubtrfs::Result<u64> {
    Ok(FileDevice::open(path, DeviceAccess::Read)?.len_bytes())
}

/// Writes to any file through `io::Write`.
fn write_lines(mut out: impl Write) -> io::Result<()> {
    (0..100).try_for_each(|number| writeln!(out, "line {number}"))
}

fn files(root: &Subvolume) -> Outcome {
    root.create_dir_all("/home/user")?;
    write_lines(root.create_file("/home/user/lines")?)?;
    let lines = BufReader::new(root.open_file("/home/user/lines")?).lines();
    assert_eq!(lines.collect::<io::Result<Vec<_>>>()?.len(), 100);

    let both = OpenOptions::new().read(true).write(true);
    let mut file = root.open_with("/home/user/lines", &both)?;
    file.write_all_at(b"LINE", 0)?;
    file.seek(SeekFrom::End(-3))?;
    let mut end = String::new();
    file.read_to_string(&mut end)?;
    assert_eq!(end, "99\n");
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    let past = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_times(FileTimes::new().set_modified(past))?;
    file.sync_all()?;
    let metadata = file.metadata()?;
    assert_eq!(
        (metadata.mode() & 0o777, metadata.modified()),
        (0o600, past)
    );

    root.copy("/home/user/lines", "/home/copy")?;
    root.symlink("user/lines", "/home/link")?;
    assert_eq!(
        root.canonicalize("home/link")?,
        Path::new("/home/user/lines")
    );
    let flags = FileFlags {
        append: true,
        ..FileFlags::default()
    };
    root.set_flags("/home/copy", flags)?;
    let refused = root.create_file("/home/copy").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert_eq!(refused.path(), Some(Path::new("/home/copy")));
    let names = root.read_dir("/home")?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<ubtrfs::Result<Vec<_>>>()?;
    assert_eq!(names, ["user", "copy", "link"]);
    Ok(())
}

fn snapshots(volume: &Volume) -> Outcome {
    let data = volume.root().create_subvolume("/data")?;
    data.write("/index", "0")?;
    let snapshot = |name: &str| {
        let made = volume.root().snapshot("/data", name, Access::ReadOnly)?;
        Snapshot::open(&made)
    };
    let first = snapshot("/first")?;
    volume.group(|| {
        data.write("/record", vec![7; 100_000])?;
        data.write("/index", "1")
    })?;
    let second = snapshot("/second")?;
    let added = second
        .changes_since(&first)?
        .find(|change| matches!(change, Ok(change) if change.kind == ChangeKind::Added));
    assert_eq!(added.expect("there is one")?.path, Path::new("record"));

    let (mut whole, mut difference) = (Vec::new(), Vec::new());
    first.send(&SendOptions::new(), &mut whole, &mut ())?;
    second.send(&SendOptions::new().parent(&first), &mut difference, &mut ())?;
    let backup = Volume::in_memory(256 << 20)?;
    let streams = [whole, difference].concat();
    let commands = StreamDump::open(&streams[..], |seconds| seconds)?;
    assert!(commands.count() > 3);
    let options = ReceiveOptions::new().all_streams(true);
    backup
        .root()
        .receive("/", &streams[..], &options, &mut ())?;
    assert_eq!(backup.root().read("/second/record")?, vec![7; 100_000]);
    assert!(
        backup
            .subvolumes()?
            .iter()
            .any(|info| info.received_uuid.is_some())
    );
    Ok(())
}

fn main() -> Outcome {
    let folder = Folder::new()?;
    let image = folder.0.join("volume.img");
    let options = MkfsOptions {
        label: b"outside".to_vec(),
        metadata: Some(Profile::Single),
        ..MkfsOptions::default()
    };
    let zstd = Compress {
        algorithm: Compression::Zstd,
        ..Compress::default()
    };
    let builder = Volume::builder().mkfs(options).compress(zstd);
    let volume = builder.create(&[&image], 1 << 30)?;
    files(volume.root())?;
    snapshots(&volume)?;
    let space = volume.space()?;
    assert!(
        space
            .block_groups
            .iter()
            .any(|group| group.kind == BlockGroupKind::Data)
    );
    assert!(volume.statistics().commits > 0 && volume.devices().len() == 1);
    let (home, mut problems) = (folder.0.join("home"), Problems::default());
    let options = CopyOptions::new();
    volume
        .root()
        .copy_to_host("/home", home, &options, &mut problems)?;
    assert!(problems.is_empty());
    volume.close()?;
    assert!(Checker::new().read_data(true).check(&image)?.is_clean());
    assert_eq!(Volume::open_read_only(&image)?.label(), "outside");
    assert!(length(&image)? > 0);
    assert_eq!(CsumType::default().name(), "crc32c");

    let device = Arc::new(Counting {
        inner: MemDevice::new(256 << 20),
        flushes: 0.into(),
    });
    let devices = vec![(
        PathBuf::from("counting"),
        device.clone() as Arc<dyn BlockDevice>,
    )];
    let volume = Volume::builder().make(devices)?;
    volume.root().write("/file", "content")?;
    volume.close()?;
    assert!(device.flushes.load(std::sync::atomic::Ordering::Relaxed) > 0);
    println!("the library does what it says");
    Ok(())
}
